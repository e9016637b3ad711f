"""Planning: power, pairs needed and detectable effect of the test that decides.

Effects are d_z, in SDs of normal paired differences. Of the paired t all this is exact. Of the gate
it is simulated, under a fixed seed: its interval moves with the mean, so a study rejects an effect
d exactly where its interval around noise alone, moved by d, leaves 0 out, and one set of simulated
studies gives the power at every d. Each study is resampled as `bootstrap` does, with fewer
resamples above 7 pairs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np

from .bootstrap import ResamplePlan, resample_plan, sampled_plan
from .conventions import (
    ALPHA,
    ENUMERATE_BOOTSTRAP_TO,
    POWER,
    TIE,
    Floats,
    StatisticsError,
    checked_count,
    checked_fraction,
    checked_positive,
)
from .distributions import noncentral_t_cdf, root, stdtrit

TestName = Literal["paired_t", "gate"]

MOST_PAIRS = 10**7  # a plan that needs more is no plan
# Pairs; with more, the paired t's power stands for the gate's. At 100 pairs, where the t has 80%,
# the gate had 79.7% in simulation (alpha .05) and 77.2% (alpha .05 / 18), with an error of 0.9.
SIMULATE_TO = 100


def paired_t_power(d_z: float, n: int, *, alpha: float = ALPHA) -> float:
    """Probability that the two-sided paired t rejects (Cohen 1988, ch. 2), both tails counted."""
    if not math.isfinite(d_z):
        raise StatisticsError(f"d_z = {d_z} is not finite: pass mean / SD of the differences")
    n = checked_count(n, "n", 2, "a paired t needs two pairs")
    return t_power(n - 1, abs(d_z) * math.sqrt(n), alpha)


def t_power(df: float, ncp: float, alpha: float) -> float:
    """Probability that a two-sided t on `df` rejects, of noncentrality `ncp`: both tails."""
    critical = float(stdtrit(df, 1 - checked_fraction(alpha, "alpha") / 2))
    return noncentral_t_cdf(-critical, df, ncp) + 1 - noncentral_t_cdf(critical, df, ncp)


def least_found(power_at: Callable[[float], float], power: float) -> float:
    """Return the least size at which a power that rises with it is `power`."""
    most = 1.0
    while power_at(most) < power:
        most *= 2
    return root(lambda size: power_at(size) - power, 0.0, most)


def require_power(power: float, alpha: float) -> None:
    """Raise StatisticsError for a power that no effect at all has."""
    power, alpha = checked_fraction(power, "power"), checked_fraction(alpha, "alpha")
    if power <= alpha:
        raise StatisticsError(f"power = {power} is not above alpha = {alpha}: ask for more power")


def power_of(d_z: float, n: int, *, alpha: float = ALPHA, test: TestName = "paired_t") -> float:
    """Probability that `test` rejects; the gate's to `power_error`."""
    if test == "gate" and n <= SIMULATE_TO:
        return gate_power(d_z, n, alpha)
    return paired_t_power(d_z, n, alpha=alpha)


def power_error(test: TestName, power: float = POWER) -> float:
    """Monte Carlo standard error of a power stated for `test`."""
    return math.sqrt(power * (1 - power) / STUDIES) if test == "gate" else 0.0


def required_pairs(
    d_z: float, *, power: float = POWER, alpha: float = ALPHA, test: TestName = "paired_t"
) -> int:
    """Return the fewest pairs with which `test` has at least that power (power increases in n)."""
    d_z = checked_positive(abs(d_z), "d_z")
    power = checked_fraction(power, "power")
    # The gate never rejects where the t does not, and needs a few pairs more.
    least = 2 if test == "paired_t" else required_pairs(d_z, power=power, alpha=alpha)
    found = fewest(
        lambda n: power_of(d_z, n, alpha=alpha, test=test) >= power, MOST_PAIRS, least=least
    )
    if found is None:
        raise StatisticsError(
            f"d_z = {d_z:g} needs more than {MOST_PAIRS} pairs: reduce the SD or the claim"
        )
    return found


def fewest(enough: Callable[[int], bool], most: int, *, least: int = 2) -> int | None:
    """Return the least number from `least` that is enough, and all above it; None above `most`."""
    high, step = least, 1
    while not enough(high):
        high, step = high + step, 2 * step
        if high > most:
            return None
    return bisect_left(range(high), True, lo=max(least, high - step // 2), key=enough)


def minimum_detectable_effect(
    n: int, *, power: float = POWER, alpha: float = ALPHA, test: TestName = "paired_t"
) -> float:
    """Return the least d_z that n pairs detect with that power; times the SD, in the endpoint's
    unit.

    Infinite where no effect is large enough: the gate cannot reject with three pairs.
    """
    require_power(power, alpha)
    if test == "gate" and n <= SIMULATE_TO:
        return gate_detectable(n, power, alpha)
    return least_found(lambda d_z: paired_t_power(d_z, n, alpha=alpha), power)


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
    """Return the least d_z that n pairs detect with that power; infinite where none is."""
    low, _ = _bounds(checked_count(n, "n", 2), alpha)
    # Rejection on the wrong side, which is below alpha / 2, is not counted.
    return float(np.quantile(-low, power, method="higher"))


@lru_cache(maxsize=256)
def _bounds(n: int, alpha: float) -> tuple[Floats, Floats]:
    """Return the gate's interval of level 1 - alpha in each simulated study of no effect: its
    bounds."""
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
    """Return of each row the first and the last value with a tail mass above `tail`, (2, B)."""
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
