"""The error rates of the whole pipeline, measured on A/A studies, where there is nothing to find.

A replicate is a study of its own: every contrast analysed as registered, adjusted by Holm in its
family, and decided. All arms are the baseline with other initial values, so seeds are exchangeable
and any grouping of them into replicates is as good as the one they were run in. The same trials are
grouped anew several times and rates averaged, which keeps their mean and can only lower their
variance; the interval is still that of so many replicates as share no trial.

A replicate of a tuned study is tuned too, on seeds of its own, and so is in a folder of its own.
Its arms are alike at every value: what tells them apart is chance, that of the choice included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paribus.analysis import Analysis, Table, analyse, analyse_table, sampling_of, with_all_looks
from paribus.decision.rules import rule_of
from paribus.decision.verdict import Verdict, decide
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, registered_rule, why_unregistered
from paribus.rng import stream
from paribus.statistics import Interval, clopper_pearson, holm
from paribus.study import Plan

ANALYSES = 100  # replicates that are analysed, regrouped ones included, unless there are more


@dataclass(frozen=True)
class Rate:
    """A share of `n` replicates that share no trial.

    Attributes:
        nominal: what it should be, or at most be.
        rate: the mean over all groupings.
        interval: a 95% Clopper-Pearson interval for `n` replicates.
    """

    name: str
    nominal: float
    rate: float
    n: int
    interval: Interval


@dataclass(frozen=True)
class Calibration:
    """Measured error rates of the whole pipeline.

    Attributes:
        rule: that decides.
        metrics, label: the primary endpoints, and `test` what decides on them.
        pairs: seed pairs of each replicate; `contrasts` are its family.
        replicates: that share no trial; `analyses` is how many were analysed, regrouped ones
            included.
        skipped: replicates, as they were run, with a trial that is not finished.
        p_values: of the deciding test, of every contrast of every replicate as it was run.
        looks: that every replicate went through; empty without a plan. `mean_seeds` is how many
            seeds a contrast then took on average.
        tuned: whether every replicate was tuned, on seeds of its own.
    """

    rule: str
    metrics: list[str]
    label: str
    test: str
    pairs: int
    contrasts: int
    replicates: int
    analyses: int
    rates: tuple[Rate, ...]
    skipped: int
    p_values: tuple[float, ...]
    looks: tuple[int, ...]
    mean_seeds: float
    tuned: bool = False


def calibrate(
    results: Results, pairs: int, analyses: int = ANALYSES, *, plan: Plan | None = None
) -> Calibration:
    """Measure error rates over the replicates of a `null_study`, each of `pairs` seeds.

    Args: plan: of looks, that every replicate goes through: it counts the trials that it would have
        stopped after, though all are there.

    Raises ParibusError where no replicate is complete, or a control is broken.
    """
    study = results.study
    _require_sound(results)
    unfinished = {folder.seed for folder in results.unfinished}
    as_run = [study.seeds[i : i + pairs] for i in range(0, len(study.seeds), pairs)]
    groups = [group for group in as_run if not unfinished & set(group)]
    if not groups:
        raise ParibusError(
            f"no replicate of {results.path} is complete; run `paribus run --null` again"
        )
    rule = registered_rule(ResultsFolder(results.path))
    table, happened, p_values, seeds = Table.of(results), [], [], []
    for number, group in enumerate(_groupings(groups, pairs, analyses)):
        part = replace(table, results=results.of_seeds(sorted(group), plan))
        analysis = analyse_table(with_all_looks(part) if plan else part, own_rule=rule)
        seeds.append(_seeds_taken(analysis))
        happened.append(_happened(analysis, decide(analysis)))
        if number < len(groups):
            primary = [c.decided for c in analysis.contrasts if c.primary]
            p_values += [says.p_value for says in primary if says]
    return Calibration(
        **_about(results, pairs, happened, len(groups)),
        analyses=len(happened),
        skipped=len(as_run) - len(groups),
        looks=plan.looks if plan else (),
        mean_seeds=float(np.mean(seeds)),
        p_values=tuple(p_values),
    )


def calibrate_tuned(replicates: Sequence[Results]) -> Calibration:
    """Measure error rates over finished `tuned_null_studies`, tuning and looks included.

    Raises ParibusError where none is complete, or a control of one is broken.
    """
    complete = [results for results in replicates if not results.unfinished]
    if not complete:
        raise ParibusError("no replicate is complete; run `paribus run --null` again")
    happened, p_values, seeds = [], [], []
    for results in complete:
        _require_sound(results)
        analysis = analyse(results)
        seeds.append(_seeds_taken(analysis))
        happened.append(_happened(analysis, decide(analysis)))
        p_values += [c.decided.p_value for c in analysis.contrasts if c.primary and c.decided]
    plan = complete[0].study.plan
    return Calibration(
        **_about(complete[0], len(complete[0].study.seeds), happened, len(complete)),
        analyses=len(complete),
        skipped=len(replicates) - len(complete),
        looks=plan.looks if plan else (),
        mean_seeds=float(np.mean(seeds)),
        p_values=tuple(p_values),
        tuned=True,
    )


def _require_sound(results: Results) -> None:
    """Raise ParibusError where a control is broken, or the study is not what was registered."""
    broken = [control.name for control in results.controls if control.state == "broken"]
    if broken:
        raise ParibusError(f"controls of {results.path} are broken: {', '.join(broken)}")
    if why := why_unregistered(ResultsFolder(results.path), results.study, results.trials):
        raise ParibusError(f"{results.path}: {why}")


def _about(
    results: Results, pairs: int, happened: list[dict[str, float]], n: int
) -> dict[str, Any]:
    """Return what was measured, and the rates of `n` replicates that share no trial."""
    study = results.study
    alpha = study.inference.alpha
    nominal = {
        "any primary contrast significant (Holm)": alpha,
        "any secondary contrast significant (Holm)": alpha,
        "any verdict of an effect (quality or events)": 2 * alpha,
        "one primary contrast significant, unadjusted": alpha,
        "coverage of one primary interval": 1 - alpha,
    }
    return {
        "rule": study.decision.rule,
        "metrics": [endpoint.metric for endpoint in study.judged],
        "label": " and ".join(results.metrics[endpoint.metric].label for endpoint in study.judged),
        "test": study.inference.test,
        "pairs": pairs,
        "contrasts": len(study.contrasts),
        "replicates": n,
        "rates": tuple(
            _rate(name, values, [h[name] for h in happened], n) for name, values in nominal.items()
        ),
    }


def _groupings(
    groups: list[tuple[int, ...]], pairs: int, analyses: int
) -> Iterator[tuple[int, ...]]:
    """Yield the groups as they were run, then whole groupings of the same seeds drawn anew."""
    yield from groups
    seeds = np.array([seed for group in groups for seed in group])
    if len(groups) == 1:
        return  # there is one way to group them
    for again in range(analyses // len(groups) - 1):
        drawn = stream(again, "regroup").permutation(seeds)
        for start in range(0, len(drawn), pairs):
            yield tuple(drawn[start : start + pairs].tolist())


def _happened(analysis: Analysis, verdicts: list[Verdict]) -> dict[str, float]:
    """Count what one replicate claims: 1 or 0, or a share of its contrasts."""
    alpha = analysis.study.inference.alpha
    primary = [c for c in analysis.contrasts if c.primary]
    says = [c.decided for c in primary if c.decided is not None]
    # Of fewer than 5 pairs nothing is claimed; what the test would have said is counted here.
    rates = {}
    for kind in ("primary", "secondary"):
        family = [c for c in analysis.contrasts if c.counted and c.primary == (kind == "primary")]
        p_values = [c.decided.p_value if c.decided else 1.0 for c in family]
        rates[kind] = bool(family) and holm(p_values).min() <= alpha
    rows = rule_of(analysis).all_rows
    claims = [verdict for verdict in verdicts if rows[verdict.row].claims]
    return {
        "any primary contrast significant (Holm)": float(rates["primary"]),
        "any secondary contrast significant (Holm)": float(rates["secondary"]),
        "any verdict of an effect (quality or events)": float(bool(claims)),
        "one primary contrast significant, unadjusted": _share(
            [s.p_value <= alpha for s in says], 0.0
        ),
        "coverage of one primary interval": _share([0.0 in s.interval for s in says], 1.0),
    }


def _seeds_taken(analysis: Analysis) -> float:
    """Return the seeds that a contrast took, on average."""
    study, looks = analysis.study, analysis.looks
    return float(np.mean([len(sampling_of(study, looks, arm).seeds) for arm, _ in study.contrasts]))


def _share(hits: list[bool], otherwise: float) -> float:
    return float(np.mean(hits)) if hits else otherwise


def _rate(name: str, nominal: float, happened: list[float], n: int) -> Rate:
    """Average over all groupings, with the outer bounds of an interval for `n` replicates."""
    rate = float(np.mean(happened))
    few, many = int(np.floor(rate * n + 1e-9)), int(np.ceil(rate * n - 1e-9))
    low, high = clopper_pearson(few, n), clopper_pearson(many, n)
    return Rate(name, nominal, rate, n, Interval(low.low, high.high, low.level))
