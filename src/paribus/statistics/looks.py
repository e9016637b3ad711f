"""Group-sequential tests: nominal p-values that control the error over all interim looks.

A study of n_K pairs is tested after n_1 < ... < n_K of them. The boundary of look k is a nominal
one-sided p: the p of the deciding test (such as a paired t) as if that look were the only one. A
level is spent over the looks by a spending function (Lan and DeMets 1983, Biometrika 70,
659-663) of the information fraction t = n_k / n_K, and boundaries follow from it: among studies
without an effect that crossed no earlier boundary, the share that cross the k-th is what is
spent there.

Published boundaries are for normal statistics, and with five pairs a t is far from normal. So
they are computed here from studies simulated under a fixed seed. Looks at normal differences
need only two numbers: the running sum and the running sum of squares. Only the share of studies
in which two looks *both* cross is simulated. The rest is exact, because a nominal p is uniform
without an effect:

    b_k - P(p_k <= b_k and an earlier look crossed) = spent_k - spent_{k-1}.

So the first boundary is exact, and no other is below the increment that it spends. Levels
lie on a grid (`Looks.bound` interpolates it, `Looks.level` inverts the same interpolation); a
boundary rises with the level, as Holm over several hypotheses needs (Maurer and Bretz 2013).

A two-sided test is two one-sided tests at half the level. This is slightly conservative, because
both sides may be crossed at different looks.

The spending function resembles the boundaries of O'Brien and Fleming. Of a one-sided level a, 2
- 2 Phi(z / sqrt(t)) is spent up to t, with z the upper a / 2 quantile. That spends almost
nothing early, so the last look loses little power. All values are on the log scale, because at a
quarter of the information it spends 1e-16 of a level of 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy

from .conventions import ALPHA, Floats, Interval
from .proportions import event_rates
from .t_test import TestOf, TTest

# Above this one-sided level the increments of `obrien_fleming` begin to fall as the level rises
# (Maurer and Bretz 2013, section 3): what is above is spent at the last look.
MONOTONE_TO = 0.3


def log_spent(levels: Floats, fraction: float) -> Floats:
    """Return the logarithm of the level spent up to information `fraction` in (0, 1]."""
    if fraction == 1:
        return np.log(levels)
    quantiles = scipy.special.ndtri(np.minimum(levels, MONOTONE_TO) / 2)
    return math.log(2) + scipy.special.log_ndtr(quantiles / math.sqrt(fraction))


STUDIES = 2**20  # simulated; the error over all looks is then known to some 0.02 percentage points
SEED = 20_261_122
LEAST_LEVEL = 1e-14  # one-sided; smaller levels are not distinguished
# One-sided levels at which boundaries are computed: closer together where they are used most.
LEVELS = np.concatenate(
    [
        np.geomspace(LEAST_LEVEL, 1e-4, 40, endpoint=False),
        np.geomspace(1e-4, MONOTONE_TO, 70),
        np.linspace(MONOTONE_TO, 1, 15)[1:],
    ]
)


@dataclass(frozen=True)
class Boundary:
    """Boundary of a two-sided test at one look.

    Attributes:
        pairs: number of pairs at the look.
        spent: part of the two-sided level that is spent up to and including this look.
        nominal_p: largest two-sided p that rejects, computed as if there were no other look.
        t: |t| that corresponds to `nominal_p` at this number of pairs.
    """

    pairs: int
    spent: float
    nominal_p: float
    t: float


@dataclass(frozen=True)
class Looks:
    """A plan of interim looks.

    Attributes:
        pairs: number of pairs at each look, ascending; the last is the whole study.
        studies: number of studies simulated to compute the boundaries.
    """

    pairs: tuple[int, ...]
    studies: int = STUDIES

    @property
    def fractions(self) -> tuple[float, ...]:
        """Information fraction of each look: its pairs over those of the last look."""
        return tuple(pairs / self.pairs[-1] for pairs in self.pairs)

    def spent(self, level: float) -> Floats:
        """Return how much of a one-sided `level` is spent up to each look, (K,)."""
        levels = np.array([level])
        return np.exp([log_spent(levels, t)[0] for t in self.fractions])

    def bound(self, look: int, level: float) -> float:
        """Return the largest nominal one-sided p that rejects at a look, or 0 if none does.

        Args:
            look: index of the look, from 0.
            level: one-sided level over all looks.
        """
        levels, bounds = _boundary_table(self)[look]
        if level < LEAST_LEVEL:
            return 0.0
        return float(np.exp(np.interp(math.log(level), levels, bounds)))

    def level(self, look: int, p: float | Floats) -> Floats:
        """Return the smallest one-sided level at which a nominal p rejects at a look.

        The result is itself a p-value, whatever looks were taken before and whatever stopped
        sampling: a sequential p (Liu and Anderson 2008), at the last look and not at the most
        favourable one. It is never below `LEAST_LEVEL`, and 1 if no level rejects.

        Args:
            look: index of the look, from 0.
            p: nominal one-sided p, or an array of them.
        """
        levels, bounds = _boundary_table(self)[look]
        with np.errstate(divide="ignore"):
            levels_at_p = np.interp(np.log(p), bounds, levels, right=0.0)
        return np.exp(levels_at_p)

    def boundaries(self, alpha: float = ALPHA) -> tuple[Boundary, ...]:
        """Return the boundaries of a two-sided test of level `alpha`, one for each look."""
        spent = 2 * self.spent(alpha / 2)
        boundaries = []
        for k, pairs in enumerate(self.pairs):
            p = self.bound(k, alpha / 2)
            t = float(-scipy.special.stdtrit(pairs - 1, p)) if p > 0 else math.inf
            boundaries.append(Boundary(pairs, float(spent[k]), 2 * p, t))
        return tuple(boundaries)


def simulated_t(looks: Looks, studies: int) -> list[Floats]:
    """Simulate studies of standard normal differences, and return t at each look, (K, N).

    Only the increments between looks are drawn: a normal sum of m differences and, independently,
    their chi-squared spread.
    """
    rng = np.random.default_rng([SEED, *looks.pairs])
    total, squares = np.zeros(studies), np.zeros(studies)
    statistics, before = [], 0
    for pairs in looks.pairs:
        new = pairs - before
        added = math.sqrt(new) * rng.standard_normal(studies)
        squares = squares + added**2 / new
        if new > 1:
            squares += rng.chisquare(new - 1, studies)
        total = total + added
        spread = np.maximum(squares - total**2 / pairs, np.finfo(float).tiny)
        statistics.append(total / np.sqrt(pairs * spread / (pairs - 1)))
        before = pairs
    return statistics


@lru_cache(maxsize=32)
def _boundary_table(looks: Looks) -> list[tuple[Floats, Floats]]:
    """Return each look's log levels, and the log of the boundary at each level.

    A boundary is the largest nominal one-sided p that rejects.
    """
    half = max(1, looks.studies // 2)
    statistics = simulated_t(looks, half)
    crossed = np.full(2 * half, np.inf)  # the least log level at which an earlier look crossed
    table, before = [], None
    for k, pairs in enumerate(looks.pairs):
        last = k == len(looks.pairs) - 1
        levels = LEVELS if last else LEVELS[LEVELS <= MONOTONE_TO]
        spent = log_spent(levels, looks.fractions[k])
        one_side = scipy.special.stdtr(pairs - 1, -statistics[k])
        p = np.concatenate([one_side, 1 - one_side])  # every study twice, once with turned signs
        bounds = spent
        if before is not None:
            earlier = log_spent(levels, before)
            added = spent + np.log(-np.expm1(earlier - spent))
            bounds = _solved(p, crossed, np.log(levels), added, spent)
        table.append((np.log(levels), bounds))
        before = looks.fractions[k]
        if not last:
            crossed_now = np.interp(np.log(p), bounds, np.log(levels), right=np.inf)
            crossed = np.minimum(crossed, crossed_now)
    return table


def _solved(p: Floats, crossed: Floats, levels: Floats, added: Floats, spent: Floats) -> Floats:
    """Solve b - P(p <= b, crossed before) = added for b, at each level.

    Args:
        p, crossed: one entry per simulated study.
        levels, added, spent: logarithms, one entry per level.

    Returns: log b, one entry per level.
    """
    order = np.argsort(p)
    p, crossed = p[order], crossed[order]
    bounds = np.empty_like(added)
    for i, (level, add, total) in enumerate(zip(levels, added, spent, strict=True)):
        near = np.searchsorted(p, math.exp(total), side="right")
        early = p[:near][crossed[:near] <= level]
        beyond = early - np.arange(early.size) / p.size > math.exp(add)
        both = int(np.argmax(beyond)) if beyond.any() else early.size
        bounds[i] = np.logaddexp(add, math.log(both / p.size)) if both else add
    bounds = np.minimum(bounds, spent)
    # Noise must not make a higher level stricter: the lower one gives way.
    return np.minimum.accumulate(bounds[::-1])[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class AtLook(TTest):
    """Test of the pairs at look `look` (from 0), which controls the error over all `looks`.

    Boundaries are nominal p-values, so all results at a look follow from the nominal p. The
    p-value is the smallest level at which the plan would have rejected (`Looks.level`). The
    interval has the boundary's nominal level: a *repeated confidence interval* (Jennison and
    Turnbull 1989, JRSS B 51, 305-361). It excludes a null mean exactly if the p against it is
    below the level. Both are valid whatever stopped sampling: an effect, equivalence, an ignored
    look, a lost machine. Intervals by stage-wise ordering are shorter, but valid only if
    sampling stops by a single rule for effects.
    """

    looks: Looks
    look: int

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p, adjusted for all looks."""
        return min(1.0, 2 * self._level(super().p_value(null) / 2))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """Return the one-sided p, adjusted for all looks."""
        return self._level(super().one_sided_p(null, greater=greater))

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the interval of null means with p above 1 - level.

        It is unbounded if this look cannot reject.
        """
        return replace(super().interval(1 - self._nominal(1 - level)), level=level)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the smallest effect that this look detects with its number of pairs and spread."""
        nominal = self._nominal(alpha)
        if 1 - nominal == 1:  # nothing can be detected at this level
            return math.inf
        return super().detectable(power=power, alpha=nominal)

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Return the number of pairs at the last look that detects `effect`.

        The plan keeps its information fractions. Earlier looks can only add to the power.
        """
        nominal = 2 * self.looks.bound(len(self.looks.pairs) - 1, alpha / 2)
        return super().pairs_needed(effect, power=power, alpha=nominal)

    def _nominal(self, alpha: float) -> float:
        """Return the largest two-sided nominal p that rejects at this look, at level `alpha`."""
        return 2 * self.looks.bound(self.look, alpha / 2)

    def _level(self, p: float) -> float:
        return float(self.looks.level(self.look, p))


@dataclass(frozen=True)
class OneLook:
    """Design of pairs sampled up to look `look` (from 0) of a plan."""

    looks: Looks
    look: int

    def decide(self, test_of: TestOf) -> AtLook:
        """Return the test of all pairs, which controls the error over all looks."""
        return AtLook(**vars(test_of(slice(None))), looks=self.looks, look=self.look)

    def other_p(self, p: float) -> float:
        """Adjust the nominal p of another test at this look for all looks."""
        return min(1.0, 2 * float(self.looks.level(self.look, p / 2)))

    def events_p(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """Return McNemar's p, adjusted for all looks."""
        return self.other_p(event_rates(baseline, treatment).p_value)


def skewness(values: Sequence[float]) -> tuple[float, float]:
    """Return the sample skewness G1 and its standard error for normal values, or zeros.

    Zeros stand for an undefined skewness, of fewer than three values or of equal values. Source:
    Joanes and Gill (1998, The Statistician 47, 183-189).
    """
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < 3 or not np.ptp(x) > 0:
        return 0.0, 0.0
    deviations = (x - x.mean()) / np.ptp(x)  # of any magnitude
    g1 = float((deviations**3).mean() / (deviations**2).mean() ** 1.5)
    error = math.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    return g1 * math.sqrt(n * (n - 1)) / (n - 2), error
