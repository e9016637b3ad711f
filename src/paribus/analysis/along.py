"""Arms against each other along their training: by tokens, by FLOPs and by seconds.

The end of the schedule stays primary: what is here describes the way there. Learning rates that
decay end every curve lower than a longer run would be at that point, so that "less budget to the
same loss" is about this schedule and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paribus.analysis.table import Table
from paribus.results.curves import AXES, ROUNDING, Axis, LossCurve, speedup
from paribus.statistics import (
    CurveContrast,
    Result,
    StatisticsError,
    curve_contrast,
    paired_t,
)

Pairs = list[tuple[LossCurve, LossCurve]]


@dataclass(frozen=True)
class Ratio(Result):
    """A mean logarithm of ratios over seed pairs, with the interval of the paired t."""

    n: int
    log: float
    low: float
    high: float


@dataclass(frozen=True)
class Along(Result):
    """One contrast along one budget.

    Attributes:
        axis: the budget.
        seeds: of the pairs.
        spent: the points: those of the reference, up to the smallest budget of any trial.
        contrast: arm minus reference there, in nats per token, seed by seed, and where it is 0.
        speedup: at the loss that both of a pair reach: how many times the budget the reference
            took. None where no pair has one.
        left_out: how many points are not compared, as the loss of some trial is not finite there.
            Such a point is above any loss, so that speed-ups lose no pair by it.
    """

    arm: str
    reference: str
    axis: Axis
    seeds: tuple[int, ...]
    spent: tuple[float, ...]
    contrast: CurveContrast
    speedup: Ratio | None
    left_out: int


def along(table: Table) -> list[Along]:
    """Every contrast along every budget that is known; none where no curve was measured.

    Seeds are those that the contrast can use; arms of other tokenizers, and such with a broken
    control, are not compared.
    """
    study, curves = table.results.study, table.results.trial_curves
    curves_along: list[Along] = []
    for arm, reference in study.contrasts:
        if table.broken(arm) or not study.share_tokens(arm, reference):
            continue
        seeds = [
            seed
            for seed in table.sampling(arm).seeds
            if all((name, seed) in curves for name in (arm, reference))
            and not any(table.why_diverged(name, seed) for name in (arm, reference))
        ]
        if len(seeds) < 2:
            continue
        pairs = [(curves[arm, seed], curves[reference, seed]) for seed in seeds]
        for axis in AXES:
            contrast = _along(table, (arm, reference), axis, seeds, pairs)
            curves_along += [contrast] if contrast is not None else []
    return curves_along


def _along(
    table: Table, arms: tuple[str, str], axis: Axis, seeds: list[int], pairs: Pairs
) -> Along | None:
    budgets = [curve.along(axis) for pair in pairs for curve in pair]
    known = [spent for spent in budgets if spent is not None]
    if len(known) < len(budgets):
        return None
    alpha = table.results.study.inference.alpha
    spent = _points(known[1], min(float(budget[-1]) for budget in known))
    deltas = np.array([a.loss_at(spent, axis) - b.loss_at(spent, axis) for a, b in pairs])
    kept = np.isfinite(deltas).all(axis=0)
    if not kept.any():
        return None
    speedups = [speedup(a, b, axis) for a, b in pairs]
    return Along(
        *arms,
        axis,
        tuple(seeds),
        tuple(spent[kept].tolist()),
        curve_contrast(spent[kept], deltas[:, kept], alpha=alpha),
        _ratio(np.log([s for s in speedups if s > 0]), alpha),
        int((~kept).sum()),
    )


def _points(of_reference: np.ndarray, end: float) -> np.ndarray:
    """Return the points of a reference up to `end`, which is one itself."""
    inside = of_reference[of_reference < end * (1 - ROUNDING)]
    return np.append(inside, end)


def _ratio(logs: np.ndarray, alpha: float) -> Ratio | None:
    try:
        test = paired_t(logs)
    except StatisticsError:  # fewer than two pairs
        return None
    interval = test.interval(1 - alpha)
    return Ratio(test.n, test.mean, interval.low, interval.high)
