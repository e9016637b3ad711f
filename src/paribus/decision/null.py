"""The error rates of the whole pipeline, measured on A/A studies, where there is nothing to find.

Every replicate is a study of its own, with its own seeds: all arms are the baseline with other
initial values. It is tuned as the study is, goes through its looks, and is decided as registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import fmean

import scipy

from paribus.analysis import Analysis, analyse, sampling_of
from paribus.decision.rules import rule_of
from paribus.decision.verdict import decide
from paribus.errors import ParibusError
from paribus.results import Results
from paribus.statistics import Interval, holm


@dataclass(frozen=True)
class Rate:
    """A share of replicates.

    Attributes:
        nominal: what it should be, or at most be.
        rate: the mean over replicates.
        interval: a 95% Clopper-Pearson interval.
    """

    name: str
    nominal: float
    rate: float
    interval: Interval


@dataclass(frozen=True)
class Calibration:
    """Measured error rates of the whole pipeline.

    Attributes:
        rule: that decides.
        metrics, label: the primary endpoints, and `test` what decides on them.
        pairs: seed pairs of each replicate; `contrasts` are its family.
        replicates: that are complete; `skipped` are the others.
        p_values: of the deciding test, of every contrast of every replicate.
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
    rates: tuple[Rate, ...]
    skipped: int
    p_values: tuple[float, ...]
    looks: tuple[int, ...]
    mean_seeds: float
    tuned: bool


def calibrate(replicates: Sequence[Results]) -> Calibration:
    """Measure error rates over the results of `null_studies`.

    Raises ParibusError where none is complete, or one cannot be judged.
    """
    complete = [results for results in replicates if not results.unfinished]
    if not complete:
        raise ParibusError(
            "no replicate is complete; run `paribus run --null` again", code="unfinished"
        )
    analyses = list(map(analyse, complete))
    for analysis, results in zip(analyses, complete, strict=True):
        broken = [f"{c.name} is broken" for c in analysis.controls if c.state == "broken"]
        if why := analysis.unregistered or ", ".join(broken):
            raise ParibusError(f"{results.path}: {why}", code="changed")
    study, first, n = complete[0].study, analyses[0], len(complete)
    alpha, labels = study.inference.alpha, [first.metrics[e.metric].label for e in study.judged]
    claims = list(map(_claims, analyses))
    nominal = dict(zip(claims[0], (alpha, alpha, 2 * alpha, alpha, 1 - alpha), strict=True))
    says = [c.decided for analysis in analyses for c in analysis.contrasts if c.primary]
    arms = [arm for arm, _ in study.contrasts]
    return Calibration(
        rule=study.decision.rule,
        metrics=[endpoint.metric for endpoint in study.judged],
        label=" and ".join(labels),
        test=study.inference.test,
        pairs=len(study.seeds),
        contrasts=len(arms),
        replicates=n,
        rates=tuple(_rate(k, level, [c[k] for c in claims]) for k, level in nominal.items()),
        skipped=len(replicates) - n,
        p_values=tuple(decided.p_value for decided in says if decided),
        looks=study.plan.looks if study.plan else (),
        mean_seeds=fmean(
            len(sampling_of(analysis.study, analysis.looks, arm).seeds)
            for analysis in analyses
            for arm in arms
        ),
        tuned=study.tuning is not None,
    )


def _claims(analysis: Analysis) -> dict[str, float]:
    """Count what one replicate claims: 1 or 0, or a share of its contrasts."""
    alpha, rows = analysis.study.inference.alpha, rule_of(analysis).all_rows
    says = [c.decided for c in analysis.contrasts if c.primary and c.decided is not None]

    def rejects(*, primary: bool) -> float:
        # Of fewer than 5 pairs nothing is claimed; what the test would have said is counted here.
        family = [c.decided for c in analysis.contrasts if c.counted and c.primary == primary]
        p_values = [decided.p_value if decided else 1.0 for decided in family]
        return float(bool(family) and holm(p_values).min() <= alpha)

    return {
        "any primary contrast significant (Holm)": rejects(primary=True),
        "any secondary contrast significant (Holm)": rejects(primary=False),
        "any verdict of an effect (quality or events)": float(
            any(rows[verdict.row].claims for verdict in decide(analysis))
        ),
        "one primary contrast significant, unadjusted": (
            fmean(s.p_value <= alpha for s in says) if says else 0.0
        ),
        "coverage of one primary interval": fmean(0.0 in s.interval for s in says) if says else 1.0,
    }


def _rate(name: str, nominal: float, claims: list[float]) -> Rate:
    """Return the mean; of a share of contrasts the interval has the bounds of the counts around."""
    rate, n = fmean(claims), len(claims)
    counts = floor(rate * n + 1e-9), ceil(rate * n - 1e-9)
    low, high = (scipy.stats.binomtest(count, n).proportion_ci() for count in counts)
    return Rate(name, nominal, rate, Interval(low.low, high.high, 0.95))
