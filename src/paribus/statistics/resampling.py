"""Tests by resampling: the seed-paired bootstrap, and exact sign flips.

The bootstrap resamples differences, never the arms apart. Up to 7 pairs all n^n resamples are
enumerated, as multisets with their multinomial multiplicities (1,716 rows stand for 823,543
resamples at n = 7). Above that, seeded resampling, where the observed sample counts as one more
resample, so that p = (k + 1) / (B + 1) (Davison and Hinkley 1997, 4.11).

Conventions, on which the false-positive rates at small n depend:
- **Tail**: the studentized test is equal-tailed, p = 2 min(P(t* >= t), P(t* <= t)) capped at 1, and
  ties count in both tails. Its interval keeps exactly the null means with p > 1 - level.
- **Resamples of zero SD** (n copies of one value) keep their limit, t* = +-infinity; they are not
  dropped. At n = 3 they are 3 of 27, so no 95% interval is bounded and p >= 2/27: three pairs
  cannot reject. Dropping them instead rejects a true null 19% of the time there.
- **Quantile**: an attained value, no interpolation; lower and upper mirror each other.

If a treatment does nothing, each seed's difference is as likely to have either sign (Fisher 1935,
section 21). All patterns of signs are enumerated while they are few, seeded ones are drawn above.
No n pairs can give a p below 2^(1-n), however large the effect: the floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .conventions import (
    ALPHA,
    ENUMERATE_BOOTSTRAP_TO,
    RESAMPLES,
    TIE,
    Floats,
    Interval,
    checked_resamples,
    checked_scores,
    sums,
)
from .t_test import TTest, paired_t

ENUMERATE_FLIPS_TO = 20  # pairs; up to here all 2^(n-1) sign patterns are enumerated
CANCELS = 1e-3  # of the sample's; a difference of squares this small has lost digits


@lru_cache(maxsize=ENUMERATE_BOOTSTRAP_TO)
def enumerated_plan(n: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return how often each pair enters each multiset of n pairs, (B, n), and how many resamples
    each stands for, (B,)."""
    # Every way to write n as an ordered sum of n counts, grown one pair at a time.
    rows = [[]]
    for _ in range(n - 1):
        rows = [[*row, count] for row in rows for count in range(n - sum(row) + 1)]
    counts = [[*row, n - sum(row)] for row in rows]
    multiplicity = [math.factorial(n) // math.prod(map(math.factorial, row)) for row in counts]
    return np.array(counts, dtype=np.float64), np.array(multiplicity)


@lru_cache(maxsize=16)  # the same seed and n recur across endpoints
def sampled_plan(n: int, seed: int, resamples: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the same of seeded resamples."""
    counts = resample_counts(np.random.default_rng(seed), n, resamples)
    return counts, np.ones(resamples, dtype=np.int64)


def resample_counts(rng: np.random.Generator, n: int, resamples: int) -> Floats:
    """Return counts (resamples, n) of n draws with replacement; each row sums to n."""
    drawn = rng.integers(n, size=(resamples, n))
    drawn += np.arange(resamples)[:, None] * n
    counts = np.bincount(drawn.ravel(), minlength=resamples * n)
    return counts.reshape(resamples, n).astype(np.float64)


@dataclass(frozen=True, eq=False)
class PairedBootstrap:
    """Bootstrap of the mean of paired differences; make one with `paired_bootstrap`.

    Attributes:
        deltas: sorted, and negated where `sign` is -1.
        t: of the differences as given.
        counts, multiplicity: the resamples that are drawn.
        observed: 1 where the observed sample counts as one more resample, 0 where all resamples
            are enumerated.
    """

    deltas: Floats
    sign: int
    t: TTest
    counts: Floats
    multiplicity: NDArray[np.int64]
    observed: int

    @property
    def total(self) -> int:
        """Resamples that p is counted over, the observed sample included where it counts."""
        return int(self.multiplicity.sum()) + self.observed

    @property
    def sd(self) -> float:
        """SD of the differences (n - 1), in their unit."""
        return 0.0 if self.t.constant else self.t.spread

    @cached_property
    def _standardized(self) -> Floats:
        """(deltas - mean) / SD, so that nothing below depends on location or unit."""
        return (self.deltas - self.sign * self.t.mean) / (self.sd or 1.0)

    @cached_property
    def _shifts(self) -> Floats:
        """Resampled mean minus observed mean, in SDs, (B,)."""
        return self.sign * sums(self.counts, self._standardized) / self.deltas.size

    @cached_property
    def _statistics(self) -> Floats:
        """The studentized statistic of each resample, (B,)."""
        n, shifts = self.deltas.size, self._shifts
        variances = sums(self.counts, self._standardized**2) / n - shifts**2
        lossy = variances < CANCELS  # taken again there, around the resample's own mean
        around = (self._standardized - self.sign * shifts[lossy, None]) ** 2
        variances[lossy] = (self.counts[lossy] * around).sum(axis=1) / n
        varies = variances > TIE
        limits = np.where(np.abs(shifts) > TIE, np.copysign(np.inf, shifts), 0.0)
        errors = np.sqrt(np.where(varies, variances, 1.0) / (n - 1))
        return np.where(varies, shifts / errors, limits)

    def _share(self, extreme: NDArray[np.bool_]) -> float:
        """Return the share of resamples that are so extreme, the observed sample among them."""
        return (int(self.multiplicity[extreme].sum()) + self.observed) / self.total

    def _bounds(self, values: Floats, tail: float) -> tuple[float, float]:
        """Return the outermost values whose own tail has more mass than `tail`."""
        order = np.argsort(values)
        mass = self.multiplicity[order]
        # The observed sample, where counted, is as extreme as any: a mass beyond either end.
        ends = np.concatenate([[-np.inf], values[order], [np.inf]])
        mass = np.concatenate([[self.observed], mass, [self.observed]])
        low = np.argmax(np.cumsum(mass) / self.total > tail)
        high = np.flatnonzero(np.cumsum(mass[::-1])[::-1] / self.total > tail)[-1]
        return float(ends[low]), float(ends[high])

    def p_value(self, null: float = 0.0) -> float:
        """Equal-tailed studentized bootstrap p of "the mean is null" (Hall 1992, 3.10)."""
        if self.t.constant:
            return self.t.p_value(null)
        t = self.t.statistic(null)
        slack = TIE * max(1.0, abs(t))  # ties count in both tails
        tails = self._statistics <= t + slack, self._statistics >= t - slack
        return float(min(1.0, 2 * min(map(self._share, tails))))

    def percentile_interval(self, level: float = 1 - ALPHA) -> Interval:
        """Percentile interval (Efron 1979). Descriptive: covers 84% at n = 5 when asked for 95%."""
        low, high = self._bounds(self._shifts, (1 - level) / 2)
        return Interval(self.t.mean + self.sd * low, self.t.mean + self.sd * high, level)


def paired_bootstrap(
    deltas: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    choice: float = 0.0,
) -> PairedBootstrap:
    """Bootstrap of differences of shape (S,), S >= 2; `seed` matters above 7 pairs only.

    The pairs are put in a fixed order and orientation (that of the mean) first, so that permuting
    the seeds changes nothing and swapping the arms mirrors the answer, Monte-Carlo error included.
    Equal differences cannot be resampled: the t at the `resolution` of the measurement stands in.
    """
    deltas, resamples = checked_scores(deltas, "deltas"), checked_resamples(resamples)
    t = paired_t(deltas, resolution=resolution, choice=choice)
    sign, n = -1 if t.mean < 0 else 1, deltas.size
    is_small = n <= ENUMERATE_BOOTSTRAP_TO
    plan = enumerated_plan(n) if is_small else sampled_plan(n, seed, resamples)
    return PairedBootstrap(np.sort(sign * deltas), sign, t, *plan, observed=0 if is_small else 1)


def sign_flip(deltas: ArrayLike, *, seed: int, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Sign-flip test of differences of shape (S,), S >= 2: its two-sided p (1 of identical arms)
    and the smallest p that this number of pairs can give."""
    values, resamples = checked_scores(deltas, "deltas"), checked_resamples(resamples)
    # In units of the largest |sum| there is, so that no small endpoint underflows.
    values = values / (np.abs(values).sum() or 1.0)
    n, drawn = values.size, values.size > ENUMERATE_FLIPS_TO
    if drawn:
        sums = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, n)) @ values
    else:  # with the first sign fixed, as |sum| is even
        sums = values[:1]
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
    # Where signs are drawn, those observed count as one more draw.
    exceeding = int((np.abs(sums) >= abs(float(values.sum())) - TIE).sum()) + drawn
    total = len(sums) + drawn
    return exceeding / total, max(2.0 ** (1 - n), drawn / total)
