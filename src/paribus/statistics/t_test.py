"""Student's t test of a mean difference: paired, unpaired, or over seeds crossed with items.

If all differences are equal (SD 0), their true spread is not 0, but smaller than the
measurement's resolution. This package then uses that resolution as their SD. It is the rounding
of the subtraction, unless the caller knows a coarser one (a step of 1 / I in a share of I
items). So p is the smallest that such a measurement allows, never 0. The interval inverts the
same test and is a point up to that resolution. Identical arms have p = 1.

Unpaired runs are tested by Welch's t (1947, Biometrika 34, 28-35) with the degrees of
freedom of Satterthwaite (1946, Biometrics Bulletin 2, 110-114).

At a nominal 5% and five pairs, the t rejects 5.0% of true nulls under a normal distribution,
8.5% under a lognormal one with sigma 0.5, and 17.8% with sigma 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from .conventions import ALPHA, LARGEST_MAGNITUDE, Floats, Interval, StatisticsError, checked_scores
from .power import noncentrality, required_pairs

# A subtraction of two scores is exact to half a unit in the last place of the larger, and each
# score carries half a unit of its own; 4 units bound the spread that this alone can cause.
ROUNDING_UNITS = 4
LEAST = float(np.finfo(np.float64).tiny)  # a p-value below it cannot be written


@dataclass(frozen=True)
class TTest:
    """Student's t test of a mean difference.

    Attributes:
        n: number of seed pairs, or of runs in the smaller arm.
        error: standard error from sampling seeds or runs.
        df_of_seeds: degrees of freedom of `error`.
        constant: True if nothing varies; the error is then that of the measurement's resolution.
        resolution: smallest difference that the measurement can show.
        item_error: standard error from sampling items, which more seeds cannot reduce.
        item_df: degrees of freedom of `item_error`; they apply if fewer than `df_of_seeds`.
        choice: SD of the difference due to choosing each arm's values (see `choice`), which more
            seeds cannot reduce either.
        spread: n pairs, or n runs of each arm, have the error `spread / sqrt(n)`.
        df_each: n pairs, or n runs of each arm, have `df_each * (n - 1)` degrees of freedom.
    """

    n: int
    mean: float
    error: float
    df_of_seeds: float
    spread: float
    resolution: float
    constant: bool = False
    item_error: float = 0.0
    item_df: float = math.inf
    choice: float = 0.0
    df_each: float = 1.0

    @property
    def standard_error(self) -> float:
        """Standard error of the mean difference, excluding the error of choosing values."""
        return math.hypot(self.error, self.item_error)

    @property
    def full_error(self) -> float:
        """Standard error of the mean difference, including the error of choosing values."""
        return math.hypot(self.standard_error, self.choice)

    @property
    def df(self) -> float:
        """Degrees of freedom of t: those of the seeds, or those of the items if fewer."""
        return min(self.df_of_seeds, self.item_df)

    def statistic(self, null: float = 0.0) -> float:
        """Return t against a null mean."""
        return (self.mean - null) / self.full_error

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p, never 0."""
        tail = scipy.special.stdtr(self.df, -abs(self.statistic(null)))
        return float(min(1.0, max(LEAST, 2 * tail)))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """Return p against a mean of at most `null` if `greater`, else of at least `null`."""
        t = self.statistic(null)
        return float(max(LEAST, scipy.special.stdtr(self.df, -t if greater else t)))

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the two-sided confidence interval.

        It excludes a null mean exactly if the p against that mean is below 1 - level.
        """
        half = float(scipy.special.stdtrit(self.df, (1 + level) / 2)) * self.full_error
        return Interval(self.mean - half, self.mean + half, level)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the smallest difference that the test detects at its current standard error."""
        if self.constant and math.isinf(self.item_df):
            return self.resolution * self.full_error / self.standard_error
        return noncentrality(self.df, power=power, alpha=alpha) * self.full_error

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Return the number of pairs, or runs per arm, that detects `effect`; None if none does."""
        return required_pairs(
            effect,
            self.spread,
            lasting=math.hypot(self.item_error, self.choice),
            power=power,
            alpha=alpha,
            df_each=self.df_each,
            item_df=math.inf if self.choice else self.item_df,  # as kept studies planned
        )


TestOf = Callable[[slice], TTest]  # the test of some of the pairs


def rounding(*scores: Floats) -> float:
    """Return the spread that rounding alone can cause in differences of scores; never 0."""
    largest = max(float(np.abs(score).max()) for score in scores)
    return max(ROUNDING_UNITS * float(np.finfo(np.float64).eps) * largest, 1 / LARGEST_MAGNITUDE)


def mean_and_sd(deltas: Floats) -> tuple[float, float]:
    """Return the mean and the SD (n - 1). Exact sums make both independent of the seeds' order."""
    if deltas.min() == deltas.max():
        return float(deltas[0]), 0.0
    mean = math.fsum(deltas) / deltas.size
    return mean, math.sqrt(math.fsum((deltas - mean) ** 2) / (deltas.size - 1))


def least_sd(resolution: float | None, *scores: Floats) -> float:
    """Return the larger of `resolution`, if known, and the rounding of the scores."""
    own = rounding(*scores)
    return max(own, resolution or 0.0)


def paired_deltas(baseline: ArrayLike, treatment: ArrayLike) -> Floats:
    """Return treatment minus baseline at each seed.

    Differences that agree up to the rounding of the subtraction are returned exactly equal (and
    exactly 0 if within the rounding), so that identical arms give p = 1 and not noise.

    Args:
        baseline, treatment: scores of shape (S,), entry s of both from seed s, in the same unit.

    Returns: differences of shape (S,).
    Raises StatisticsError for n = 1, NaN, infinity or unequal lengths.
    """
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    if first.shape != second.shape:
        raise StatisticsError(
            f"baseline has {first.size} scores and treatment has {second.size}, but pairs need "
            "one of each per seed; drop the unpaired seeds and report them"
        )
    deltas = second - first
    unit = rounding(first, second)
    if np.ptp(deltas) > unit:
        return deltas
    common = float(np.median(deltas))
    return np.full_like(deltas, 0.0 if abs(common) <= unit else common)


def paired_t(
    deltas: ArrayLike,
    *,
    resolution: float | None = None,
    choice: float = 0.0,
) -> TTest:
    """Return the one-sample t test (Student 1908) of differences of shape (S,), S >= 2.

    Args:
        resolution: smallest difference that the measurement can show, if known; by default the
            rounding of the differences.
        choice: as in `TTest`.
    """
    deltas = checked_scores(deltas, "deltas")
    smallest_sd, (mean, sd) = least_sd(resolution, deltas), mean_and_sd(deltas)
    spread, n = sd or smallest_sd, deltas.size
    return TTest(
        n, mean, spread / math.sqrt(n), n - 1, spread, smallest_sd, constant=sd == 0, choice=choice
    )


def welch(
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    resolution: float | None = None,
) -> TTest:
    """Return Welch's t test of scores of shapes (A,) and (B,), A and B >= 2, in the same unit.

    If neither arm varies, `resolution` is used as the SD of both. It is defined as in `paired_t`.
    """
    arms = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    smallest_sd = least_sd(resolution, *arms)
    (a, sd_a), (b, sd_b) = map(arm_summary, arms)
    constant = sd_a == sd_b == 0
    if constant and abs(b - a) <= rounding(*arms):
        b = a  # equal but for rounding
    hidden = smallest_sd if constant else 0.0
    squares = [max(sd, hidden) ** 2 for sd in (sd_a, sd_b)]
    parts = [square / arm.size for square, arm in zip(squares, arms, strict=True)]
    shares = [part / sum(parts) for part in parts]  # of the squared error: no square underflows
    equal = [square / sum(squares) for square in squares]  # the same of arms of equal sizes
    return TTest(
        n=min(arm.size for arm in arms),
        mean=b - a,
        error=math.sqrt(sum(parts)),
        df_of_seeds=1 / sum(s**2 / (arm.size - 1) for s, arm in zip(shares, arms, strict=True)),
        spread=math.sqrt(sum(squares)),
        resolution=smallest_sd,
        constant=constant,
        df_each=1 / sum(share**2 for share in equal),
    )


def arm_summary(scores: Floats) -> tuple[float, float]:
    """Return the mean and SD of one arm's scores; an SD within their rounding is 0."""
    if np.ptp(scores) <= rounding(scores):
        return float(np.median(scores)), 0.0
    return mean_and_sd(scores)
