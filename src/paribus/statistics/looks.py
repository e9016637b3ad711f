"""Group-sequential tests, which control the type I error over all interim analyses (looks).

A study with n_K pairs is tested after n_1 < ... < n_K pairs. The boundary b_k of look k is the
largest nominal one-sided p-value that rejects, where a nominal p-value ignores all other looks. A
spending function (Lan and DeMets 1983, Biometrika 70, 659-663) of the information fraction
t = n_k / n_K defines the cumulative type I error at each look, from which boundaries are computed.

Published boundaries assume normal statistics, but a t statistic of five pairs is far from normal.
Boundaries are therefore computed from studies that are simulated with a fixed seed. Only the
probability that an earlier look rejects as well is simulated; the rest is exact, because nominal
p-values are uniform under the null hypothesis:

    b_k - P(p_k <= b_k and an earlier look rejected) = spent_k - spent_{k-1}.

Boundaries are computed on a grid of levels, which `Looks.bound` and `Looks.level` interpolate. They
increase with the level, as required for Holm's method over several hypotheses (Maurer and Bretz
2013). A two-sided test consists of two one-sided tests at half the level, which is slightly
conservative.

The spending function is of the O'Brien-Fleming type: 2 - 2 Phi(z / sqrt(t)) for a one-sided level
a, where z is the upper a / 2 quantile. It spends very little at early looks, so the last look loses
little power. Computations use logarithms, because at t = 1/4 it spends 1e-16 of a level of 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    """Return the log of the cumulative type I error spent at information `fraction` in (0, 1]."""
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
    """Boundary of a two-sided test at one interim analysis.

    Attributes:
        pairs: cumulative number of pairs.
        spent: cumulative two-sided type I error.
        nominal_p: largest nominal two-sided p-value that rejects, ignoring all other looks.
        t: critical value of |t| that corresponds to `nominal_p`.
    """

    pairs: int
    spent: float
    nominal_p: float
    t: float


@dataclass(frozen=True)
class Looks:
    """A group-sequential design with K interim analyses (looks).

    Attributes:
        pairs: cumulative number of pairs at each look, ascending; the last is the total.
        studies: number of simulated studies for computing the boundaries.
    """

    pairs: tuple[int, ...]
    studies: int = STUDIES

    @property
    def fractions(self) -> tuple[float, ...]:
        """Information fraction of each look, as pairs divided by the total number of pairs."""
        return tuple(pairs / self.pairs[-1] for pairs in self.pairs)

    def spent(self, level: float) -> Floats:
        """Return the cumulative type I error spent at each look, (K,), for a one-sided level."""
        levels = np.array([level])
        return np.exp([log_spent(levels, t)[0] for t in self.fractions])

    def bound(self, look: int, level: float) -> float:
        """Return the largest nominal one-sided p-value that rejects at a look, or 0 if none does.

        Args:
            look: 0-based index of the look.
            level: one-sided significance level over all looks.
        """
        levels, bounds = _boundary_table(self)[look]
        if level < LEAST_LEVEL:
            return 0.0
        return float(np.exp(np.interp(math.log(level), levels, bounds)))

    def level(self, look: int, p: float | Floats) -> Floats:
        """Return the smallest one-sided level at which a nominal p-value rejects at a look.

        The result is a sequential p-value (Liu and Anderson 2008), which is valid for any stopping
        rule. It is at least `LEAST_LEVEL`, and 1 if no level rejects.

        Args:
            look: 0-based index of the look.
            p: nominal one-sided p-value, or an array of p-values.
        """
        levels, bounds = _boundary_table(self)[look]
        with np.errstate(divide="ignore"):
            levels_at_p = np.interp(np.log(p), bounds, levels, right=0.0)
        return np.exp(levels_at_p)

    def boundaries(self, alpha: float = ALPHA) -> tuple[Boundary, ...]:
        """Return the boundary of each look for a two-sided test at level `alpha`."""
        spent = 2 * self.spent(alpha / 2)
        boundaries = []
        for k, pairs in enumerate(self.pairs):
            p = self.bound(k, alpha / 2)
            t = float(-scipy.special.stdtrit(pairs - 1, p)) if p > 0 else math.inf
            boundaries.append(Boundary(pairs, float(spent[k]), 2 * p, t))
        return tuple(boundaries)


def simulated_t(looks: Looks, studies: int) -> list[Floats]:
    """Simulate N studies of standard normal differences, and return t at each look, (K, N).

    Only sufficient statistics are sampled, namely the sum (normal) and the squared deviations
    (chi-squared) of the differences between two looks.
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
    """Return (log levels, log boundaries) for each look.

    A boundary is the largest nominal one-sided p-value that rejects.
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
    """Solve b - P(p <= b and an earlier look rejected) = added for b at each level.

    Args:
        p, crossed: nominal p-value, and the smallest log level at which an earlier look rejected,
            for each simulated study.
        levels, added, spent: log level, and log of the added and of the cumulative type I error.

    Returns:
        log b for each level.
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
    """Test at the interim analysis `look` (0-based), adjusted for all `looks`.

    The p-value is the smallest level at which the design rejects (`Looks.level`). The interval is a
    *repeated confidence interval* at the nominal level of the boundary (Jennison and Turnbull 1989,
    JRSS B 51, 305-361), and is consistent with the p-value. Both are valid for any stopping rule.
    Intervals by stage-wise ordering would be shorter, but require a fixed stopping rule.
    """

    looks: Looks
    look: int

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p-value for a mean of `null`, adjusted for all looks."""
        return min(1.0, 2 * self._level(super().p_value(null) / 2))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """Return the one-sided p-value for a mean of `null`, adjusted for all looks."""
        return self._level(super().one_sided_p(null, greater=greater))

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the repeated confidence interval, which is unbounded if the look cannot reject."""
        return super().interval(1 - self._nominal(1 - level))

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the minimum detectable effect at this look, given its SD and number of pairs."""
        nominal = self._nominal(alpha)
        if 1 - nominal == 1:  # nothing can be detected at this level
            return math.inf
        return super().detectable(power=power, alpha=nominal)

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Return the number of pairs needed to detect `effect`, or None if too many.

        The information fractions are fixed, and the additional power of earlier looks is ignored.
        """
        nominal = 2 * self.looks.bound(len(self.looks.pairs) - 1, alpha / 2)
        return super().pairs_needed(effect, power=power, alpha=nominal)

    def _nominal(self, alpha: float) -> float:
        """Return the largest nominal two-sided p-value that rejects at level `alpha`."""
        return 2 * self.looks.bound(self.look, alpha / 2)

    def _level(self, p: float) -> float:
        return float(self.looks.level(self.look, p))


@dataclass(frozen=True)
class OneLook:
    """Sampling design of a study at the interim analysis `look` (0-based) of `looks`."""

    looks: Looks
    look: int

    def decide(self, test_of: TestOf) -> AtLook:
        """Return the test of all pairs, adjusted for all looks."""
        return AtLook(**vars(test_of(slice(None))), looks=self.looks, look=self.look)

    def other_p(self, p: float) -> float:
        """Adjust the nominal two-sided p-value of another test for all looks."""
        return min(1.0, 2 * float(self.looks.level(self.look, p / 2)))

    def events_p(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """Return the p-value of McNemar's test for paired events, adjusted for all looks."""
        return self.other_p(event_rates(baseline, treatment).p_value)


def skewness(values: Sequence[float]) -> tuple[float, float]:
    """Return the sample skewness G1 and its standard error under normality.

    The formulas are those of Joanes and Gill (1998, The Statistician 47, 183-189). Returns (0, 0)
    for fewer than three values or for equal values.
    """
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < 3 or not np.ptp(x) > 0:
        return 0.0, 0.0
    deviations = (x - x.mean()) / np.ptp(x)  # of any magnitude
    g1 = float((deviations**3).mean() / (deviations**2).mean() ** 1.5)
    error = math.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    return g1 * math.sqrt(n * (n - 1)) / (n - 2), error
