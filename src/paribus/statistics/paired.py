"""Paired differences: Student's t on them, and their size in SDs.

Equal differences (SD 0) are an effect at the resolution of the measurement: their spread is not 0
but smaller than what could be measured. Everywhere in this package their SD is then taken as that
resolution, the rounding of the subtraction unless the caller knows a coarser one (a step of 1 / I
in a share of I items). So p is the least that such a measurement allows, never 0, and the interval,
which inverts the same test, is a point up to that resolution. Identical arms have p = 1.

Scores that were rounded when they were printed hide any spread below the last printed digit. Their
SD is then taken as at least that digit (`rounded`), not only if all differences are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from .conventions import (
    ALPHA,
    DESCRIPTIVE_BELOW,
    LARGEST_MAGNITUDE,
    Floats,
    Interval,
    Result,
    StatisticsError,
    checked_fraction,
    checked_positive,
    checked_scores,
)
from .distributions import gammaln, noncentrality_interval, stdtr, stdtrit

# A subtraction of two scores is exact to half a unit in the last place of the larger, and each
# score carries half a unit of its own; 4 units bound the spread that this alone can cause.
ROUNDING_UNITS = 4
LEAST = float(np.finfo(np.float64).tiny)  # a p-value below it cannot be written


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
    unit = rounding(baseline, treatment)
    if np.ptp(deltas) > unit:
        return deltas
    common = float(np.median(deltas))
    return np.full_like(deltas, 0.0 if abs(common) <= unit else common)


def mean_and_sd(deltas: Floats) -> tuple[float, float]:
    """Mean and SD (n - 1). Summation is exact, so neither depends on the order of the seeds."""
    if deltas.min() == deltas.max():
        return float(deltas[0]), 0.0
    mean = math.fsum(deltas) / deltas.size
    return mean, math.sqrt(math.fsum((deltas - mean) ** 2) / (deltas.size - 1))


def rounding(*scores: Floats) -> float:
    """Return the spread that subtracting scores of this magnitude can cause; never 0."""
    largest = max(float(np.abs(score).max()) for score in scores)
    return max(ROUNDING_UNITS * float(np.finfo(np.float64).eps) * largest, 1 / LARGEST_MAGNITUDE)


class Estimate(Protocol):
    """A mean difference with its standard error."""

    @property
    def mean(self) -> float:
        """The mean difference."""
        ...

    @property
    def standard_error(self) -> float:
        """Of the mean difference, above 0."""
        ...

    @property
    def df(self) -> float:
        """Degrees of freedom of that error."""
        ...


class StudentT(Result):
    """An `Estimate` that is tested by Student's t on its error."""

    def statistic(self: Estimate, null: float = 0.0) -> float:
        """t against a null mean."""
        return _t(self, null)

    def p_value(self: Estimate, null: float = 0.0) -> float:
        """Two-sided p, never 0."""
        return float(min(1.0, max(LEAST, 2 * stdtr(self.df, -abs(_t(self, null))))))

    def one_sided_p(self: Estimate, null: float, *, greater: bool) -> float:
        """p against "the mean is at most null" (greater) or "at least null" (not greater)."""
        t = _t(self, null)
        return float(max(LEAST, stdtr(self.df, -t if greater else t)))

    def interval(self: Estimate, level: float = 1 - ALPHA) -> Interval:
        """Two-sided interval; excludes a null mean exactly when its p is below 1 - level."""
        level = checked_fraction(level, "level")
        half = float(stdtrit(self.df, (1 + level) / 2)) * self.standard_error
        return Interval(self.mean - half, self.mean + half, level)


def _t(of: Estimate, null: float) -> float:
    return (of.mean - null) / of.standard_error


@dataclass(frozen=True)
class PairedT(StudentT):
    """Student's one-sample t on paired differences (Student 1908)."""

    n: int
    mean: float
    sd: float
    resolution: float  # of the measurement: the SD of differences that are all equal
    rounded: bool = False  # scores are rounded to the resolution: the SD is not below it

    @property
    def df(self) -> int:
        """Degrees of freedom."""
        return self.n - 1

    @property
    def constant(self) -> bool:
        """True if all differences are equal."""
        return self.sd == 0

    @property
    def spread(self) -> float:
        """The SD, or the resolution if the SD is 0 or is hidden by rounding."""
        return max(self.sd, self.resolution) if self.rounded else self.sd or self.resolution

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return self.spread / math.sqrt(self.n)


def paired_t(
    deltas: ArrayLike, *, resolution: float | None = None, rounded: bool = False
) -> PairedT:
    """Paired t of differences of shape (S,), S >= 2.

    Args:
        resolution: of the measurement, where known; by default the differences' own rounding.
        rounded: whether scores are rounded to the resolution, which is then the least SD.
    """
    deltas = checked_scores(deltas, "deltas")
    least = rounding(deltas)
    if resolution is not None:
        least = max(least, checked_positive(resolution, "resolution"))
    return PairedT(deltas.size, *mean_and_sd(deltas), least, rounded)


def correlation(baseline: ArrayLike, treatment: ArrayLike) -> float | None:
    """Pearson correlation between arms over seeds; None where an arm varies by rounding alone.

    Pairing pays in proportion to it: Var(delta) = Var(a) + Var(b) - 2 r SD(a) SD(b).
    """
    arms = [checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")]
    if arms[0].shape != arms[1].shape:
        raise StatisticsError(
            f"arms have {arms[0].size} and {arms[1].size} scores, need one each per seed"
        )
    if any(np.ptp(arm) <= rounding(arm) for arm in arms):
        return None
    first, second = (arm - math.fsum(arm) / arm.size for arm in arms)
    covariance, *variances = (
        math.fsum(a * b) for a, b in ((first, second), (first, first), (second, second))
    )
    r = covariance / math.sqrt(variances[0] * variances[1])
    return min(1.0, max(-1.0, r))


@dataclass(frozen=True)
class EffectSize(Result):
    """In SDs of the paired differences.

    Every field is None where that SD is 0, an interval where there are fewer than 5 pairs.
    """

    d_z: float | None
    d_z_interval: Interval | None
    g_z: float | None
    g_z_interval: Interval | None


def hedges_correction(df: int) -> float:
    """J(df), by which d overestimates on average; exact, not 1 - 3/(4 df - 1) (Hedges 1981)."""
    return math.exp(gammaln(df / 2) - gammaln((df - 1) / 2)) / math.sqrt(df / 2) if df > 1 else 0.0


def effect_size(deltas: ArrayLike, *, level: float = 1 - ALPHA) -> EffectSize:
    """d_z = mean / SD (Cohen 1988), g_z = J d_z, with noncentral-t intervals.

    The interval of d_z is that of t's noncentrality over sqrt(n) (Steiger and Fouladi 1997); that
    of g_z is the same times J. With 2 pairs J(1) = 0 and g_z is 0: it says nothing.

    Args: deltas of shape (S,), S >= 2.
    """
    level = checked_fraction(level, "level")
    test = paired_t(deltas)
    if test.constant:
        return EffectSize(None, None, None, None)
    t, root = test.statistic(), math.sqrt(test.n)
    correction = hedges_correction(test.df)
    if test.n < DESCRIPTIVE_BELOW:
        return EffectSize(t / root, None, correction * t / root, None)
    low, high = (ncp / root for ncp in noncentrality_interval(t, test.df, level))
    return EffectSize(
        d_z=t / root,
        d_z_interval=Interval(low, high, level),
        g_z=correction * t / root,
        g_z_interval=Interval(correction * low, correction * high, level),
    )
