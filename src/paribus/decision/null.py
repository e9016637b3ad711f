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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from paribus.analysis import Analysis, Table, analyse, analyse_table, sampling_of, with_all_looks
from paribus.decision.rules import rule_of
from paribus.decision.verdict import decide
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
    rule, table = registered_rule(ResultsFolder(results.path)), Table.of(results)

    def analysed() -> Iterator[Analysis]:
        for group in _groupings(groups, pairs, analyses):
            part = replace(table, results=results.of_seeds(sorted(group), plan))
            yield analyse_table(with_all_looks(part) if plan else part, own_rule=rule)

    return _counted(results, analysed(), len(groups), len(as_run) - len(groups), pairs, plan)


def calibrate_tuned(replicates: Sequence[Results]) -> Calibration:
    """Measure error rates over finished `tuned_null_studies`, tuning and looks included.

    Raises ParibusError where none is complete, or a control of one is broken.
    """
    complete = [results for results in replicates if not results.unfinished]
    if not complete:
        raise ParibusError("no replicate is complete; run `paribus run --null` again")
    for results in complete:
        _require_sound(results)
    first, n = complete[0], len(complete)
    counted = _counted(
        first, map(analyse, complete), n, len(replicates) - n, len(first.study.seeds),
        first.study.plan,
    )  # fmt: skip
    return replace(counted, tuned=True)


def _require_sound(results: Results) -> None:
    """Raise ParibusError where a control is broken, or the study is not what was registered."""
    broken = [control.name for control in results.controls if control.state == "broken"]
    if broken:
        raise ParibusError(f"controls of {results.path} are broken: {', '.join(broken)}")
    if why := why_unregistered(ResultsFolder(results.path), results.study, results.trials):
        raise ParibusError(f"{results.path}: {why}")


def _counted(
    results: Results,
    analyses: Iterable[Analysis],
    n: int,
    skipped: int,
    pairs: int,
    plan: Plan | None,
) -> Calibration:
    """Count what is claimed in each analysis; the first `n` share no trial."""
    study = results.study
    happened: list[dict[str, float]] = []
    p_values: list[float] = []
    seeds: list[float] = []
    for analysis in analyses:
        happened.append(_happened(analysis))
        taken = [sampling_of(analysis.study, analysis.looks, arm) for arm, _ in study.contrasts]
        seeds.append(fmean(len(sampling.seeds) for sampling in taken))
        if len(happened) <= n:
            says = [c.decided for c in analysis.contrasts if c.primary]
            p_values += [decided.p_value for decided in says if decided]
    alpha = study.inference.alpha
    nominal = dict(zip(happened[0], (alpha, alpha, 2 * alpha, alpha, 1 - alpha), strict=True))
    return Calibration(
        rule=study.decision.rule,
        metrics=[endpoint.metric for endpoint in study.judged],
        label=" and ".join(results.metrics[endpoint.metric].label for endpoint in study.judged),
        test=study.inference.test,
        pairs=pairs,
        contrasts=len(study.contrasts),
        replicates=n,
        analyses=len(happened),
        rates=tuple(
            _rate(name, level, [h[name] for h in happened], n) for name, level in nominal.items()
        ),
        skipped=skipped,
        p_values=tuple(p_values),
        looks=plan.looks if plan else (),
        mean_seeds=fmean(seeds),
    )


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


def _happened(analysis: Analysis) -> dict[str, float]:
    """Count what one replicate claims: 1 or 0, or a share of its contrasts."""
    alpha = analysis.study.inference.alpha
    # Of fewer than 5 pairs nothing is claimed; what the test would have said is counted here.
    rejects = []
    for primary in (True, False):
        family = [c for c in analysis.contrasts if c.counted and c.primary == primary]
        p_values = [c.decided.p_value if c.decided else 1.0 for c in family]
        rejects.append(float(bool(family) and holm(p_values).min() <= alpha))
    says = [c.decided for c in analysis.contrasts if c.primary and c.decided is not None]
    rows = rule_of(analysis).all_rows
    return {
        "any primary contrast significant (Holm)": rejects[0],
        "any secondary contrast significant (Holm)": rejects[1],
        "any verdict of an effect (quality or events)": float(
            any(rows[verdict.row].claims for verdict in decide(analysis))
        ),
        "one primary contrast significant, unadjusted": (
            fmean(s.p_value <= alpha for s in says) if says else 0.0
        ),
        "coverage of one primary interval": fmean(0.0 in s.interval for s in says) if says else 1.0,
    }


def _rate(name: str, nominal: float, happened: list[float], n: int) -> Rate:
    """Average over all groupings, with the outer bounds of an interval for `n` replicates."""
    rate = float(np.mean(happened))
    few, many = int(np.floor(rate * n + 1e-9)), int(np.ceil(rate * n - 1e-9))
    low, high = clopper_pearson(few, n), clopper_pearson(many, n)
    return Rate(name, nominal, rate, n, Interval(low.low, high.high, low.level))
