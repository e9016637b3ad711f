"""Paired differences and Student's t on them.

Constant differences (SD 0) have no t: nothing varies, so nothing can be studentized, and the limit
"t = infinity, p = 0" would certify an effect from no evidence about its variation. The rule here,
shared by the t and the studentized bootstrap, is to fall back on the exact sign-flip test of the
same differences: p = 2^(1-n) against any other null value, p = 1 against the constant itself. The
interval inverts that test: the single point where 2^(1-n) <= alpha, the whole line otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from .conventions import (
    ALPHA,
    Floats,
    Interval,
    Result,
    StatisticsError,
    checked_fraction,
    checked_scores,
)

# A subtraction of two scores is exact to half a unit in the last place of the larger, and each
# score carries half a unit of its own; 4 units bound the spread that this alone can cause.
ROUNDING_UNITS = 4


def paired_deltas(baseline: ArrayLike, treatment: ArrayLike) -> Floats:
    """Treatment minus baseline at the same seed.

    Differences that agree up to the rounding of the subtraction are returned exactly equal (and
    exactly 0 where that is within the rounding), so that identical arms give p = 1 and not noise.

    Args: two score vectors of shape (S,), entry s of both from seed s, in the same units.
    Returns: shape (S,). Raises StatisticsError for n = 1, NaN, infinity or unequal lengths.
    """
    baseline, treatment = (
        checked_scores(baseline, "baseline"),
        checked_scores(treatment, "treatment"),
    )
    if baseline.shape != treatment.shape:
        raise StatisticsError(
            f"baseline has {baseline.size} scores and treatment {treatment.size}, "
            "pairs need one each per seed: drop the unpaired seeds and report them"
        )
    deltas = treatment - baseline
    unit = np.finfo(np.float64).eps * max(np.abs(baseline).max(), np.abs(treatment).max())
    if np.ptp(deltas) > ROUNDING_UNITS * unit:
        return deltas
    common = float(np.median(deltas))
    return np.full_like(deltas, 0.0 if abs(common) <= ROUNDING_UNITS * unit else common)


def mean_and_sd(deltas: Floats) -> tuple[float, float]:
    """Mean and SD (n - 1). Summation is exact, so neither depends on the order of the seeds."""
    if deltas.min() == deltas.max():
        return float(deltas[0]), 0.0
    mean = math.fsum(deltas) / deltas.size
    return mean, math.sqrt(math.fsum((deltas - mean) ** 2) / (deltas.size - 1))


def constant_p(n: int, constant: float, null: float) -> float:
    """Two-sided sign-flip p of n equal differences (see the head of this file)."""
    return 1.0 if constant == null else 2.0 ** (1 - n)


def constant_interval(n: int, constant: float, level: float) -> Interval:
    """The interval that inverts `constant_p`."""
    if 2.0 ** (1 - n) <= 1 - level:
        return Interval(constant, constant, level)
    return Interval(-math.inf, math.inf, level)


@dataclass(frozen=True)
class PairedT(Result):
    """Student's one-sample t on paired differences (Student 1908)."""

    n: int
    mean: float
    sd: float

    @property
    def df(self) -> int:
        return self.n - 1

    @property
    def standard_error(self) -> float:
        return self.sd / math.sqrt(self.n)

    def statistic(self, null: float = 0.0) -> float | None:
        """t against a null mean; None where the SD is 0."""
        return (self.mean - null) / self.standard_error if self.sd > 0 else None

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided p."""
        t = self.statistic(null)
        if t is None:
            return constant_p(self.n, self.mean, null)
        return float(min(1.0, 2 * stdtr(self.df, -abs(t))))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """p against "the mean is at most null" (greater) or "at least null" (not greater)."""
        t = self.statistic(null)
        if t is None:
            beyond = self.mean > null if greater else self.mean < null
            return 2.0**-self.n if beyond else 1.0
        return float(stdtr(self.df, -t if greater else t))

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Two-sided interval; excludes a null mean exactly when its p is below 1 - level."""
        level = checked_fraction(level, "level")
        if self.sd == 0:
            return constant_interval(self.n, self.mean, level)
        half = float(stdtrit(self.df, (1 + level) / 2)) * self.standard_error
        return Interval(self.mean - half, self.mean + half, level)


def paired_t(deltas: ArrayLike) -> PairedT:
    """Paired t of differences of shape (S,), S >= 2."""
    deltas = checked_scores(deltas, "deltas")
    return PairedT(deltas.size, *mean_and_sd(deltas))


def correlation(baseline: ArrayLike, treatment: ArrayLike) -> float | None:
    """Pearson correlation between arms over seeds; None where an arm does not vary.

    Pairing pays in proportion to it: Var(delta) = Var(a) + Var(b) - 2 r SD(a) SD(b).
    """
    arms = [checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")]
    if arms[0].shape != arms[1].shape:
        raise StatisticsError(
            f"arms have {arms[0].size} and {arms[1].size} scores, need one each per seed"
        )
    if any(arm.min() == arm.max() for arm in arms):
        return None
    first, second = (arm - arm.mean() for arm in arms)
    r = first @ second / math.sqrt((first @ first) * (second @ second))
    return float(np.clip(r, -1.0, 1.0))
