"""Power of the gate under normal differences, by seeded simulation.

The gate's interval moves with the mean: a study rejects an effect d exactly where its interval
around noise alone, moved by d, leaves 0 out. So one set of simulated studies gives the power at
every d. Each study is resampled as `bootstrap` does, with fewer resamples above 7 pairs.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .bootstrap import ResamplePlan, resample_plan, sampled_plan
from .conventions import (
    ENUMERATE_BOOTSTRAP_TO,
    TIE,
    Floats,
    StatisticsError,
    checked_count,
    checked_fraction,
)
from .scipy_later import stdtrit

STUDIES = 2_000  # simulated: a power of 80% is known to 0.9 percentage points (one standard error)
RESAMPLES = 4_000  # of each study above 7 pairs
SEED = 20_261_121
BLOCK = 250  # studies whose resamples are held in memory at once


def gate_power(d_z: float, n: int, alpha: float) -> float:
    """Probability that the gate rejects an effect of d_z SDs with n pairs."""
    if not math.isfinite(d_z):
        raise StatisticsError(f"d_z = {d_z} is not finite: pass mean / SD of the differences")
    low, high = _bounds(checked_count(n, "n", 2), checked_fraction(alpha, "alpha"))
    return float(((low + d_z > 0) | (high + d_z < 0)).mean())


def gate_detectable(n: int, power: float, alpha: float) -> float:
    """The least d_z that n pairs detect with that power; infinite where none is."""
    low, _ = _bounds(checked_count(n, "n", 2), alpha)
    # Rejection on the wrong side, which is below alpha / 2, is not counted.
    return float(np.quantile(-low, power, method="higher"))


@lru_cache(maxsize=256)
def _bounds(n: int, alpha: float) -> tuple[Floats, Floats]:
    """The gate's interval of level 1 - alpha in each simulated study of no effect: its bounds."""
    deltas = np.random.default_rng([SEED, n]).standard_normal((STUDIES, n))
    centre, error = deltas.mean(axis=1), deltas.std(axis=1, ddof=1) / math.sqrt(n)
    low, high = np.concatenate(
        [_studentized(block, alpha) for block in np.split(deltas, STUDIES // BLOCK)], axis=1
    )
    reach = float(stdtrit(n - 1, 1 - alpha / 2))
    return centre - np.maximum(high, reach) * error, centre + np.maximum(-low, reach) * error


def _studentized(deltas: Floats, alpha: float) -> Floats:
    """Outermost t* with a tail mass above alpha / 2, (2, B), as `PairedBootstrap` has them."""
    n = deltas.shape[1]
    plan = (
        resample_plan(n, SEED) if n <= ENUMERATE_BOOTSTRAP_TO else sampled_plan(n, SEED, RESAMPLES)
    )
    centred = deltas - deltas.mean(axis=1, keepdims=True)
    centred /= deltas.std(axis=1, ddof=1, keepdims=True)
    shifts = centred @ plan.counts.T / n  # (B, resamples)
    variances = (centred**2) @ plan.counts.T / n - shifts**2
    varies = variances > TIE
    errors = np.sqrt(np.where(varies, variances, 1.0) / (n - 1))
    statistics = np.where(varies, shifts / errors, np.copysign(np.inf, shifts))
    return _outermost(statistics, plan, alpha / 2)


def _outermost(statistics: Floats, plan: ResamplePlan, tail: float) -> Floats:
    """Of each row the first and the last value with a tail mass above `tail`, (2, B)."""
    if plan.observed / plan.total > tail:  # the observed sample alone is more than the tail
        return np.array([[-np.inf], [np.inf]]).repeat(len(statistics), axis=1)
    if not plan.enumerated:  # every resample counts once
        mass = (np.arange(statistics.shape[1]) + 1 + plan.observed) / plan.total
        first = int(np.argmax(mass > tail))
        ends = [first, statistics.shape[1] - 1 - first]
        return np.partition(statistics, ends, axis=1)[:, ends].T
    order = np.argsort(statistics, axis=1)
    statistics = np.take_along_axis(statistics, order, axis=1)
    mass = plan.multiplicity[order]
    first = np.argmax(np.cumsum(mass, axis=1) > tail * plan.total, axis=1)
    from_top = np.argmax(np.cumsum(mass[:, ::-1], axis=1) > tail * plan.total, axis=1)
    rows, last = np.arange(len(statistics)), statistics.shape[1] - 1 - from_top
    return np.stack([statistics[rows, first], statistics[rows, last]])
