"""A test at one look of a plan: p, intervals and equivalence that hold over all looks.

Boundaries are nominal p-values, so what is said at a look follows from the nominal p of whatever
test decides. Its p becomes the least level that the plan would have rejected at
(`Looks.level`), and its interval the one of the boundary's nominal level: a *repeated confidence
interval* (Jennison and Turnbull 1989, JRSS B 51, 305-361). Each excludes a null mean exactly where
the p against it is below the level. Both hold whatever made sampling stop: an effect, equivalence,
futility, a look that was ignored, a lost machine. Intervals by stage-wise ordering are shorter, but
hold only where sampling stops by one rule for effects alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..conventions import (
    ALPHA,
    Floats,
    Interval,
    Result,
    StatisticsError,
    checked_fraction,
)
from ..distributions import stdtr, stdtrit
from ..proportions import event_rates
from ..t_test import TestOf, TTest
from .boundaries import Looks

# Below it a level of 1 - 2 p is 1 in double precision: no interval has it.
LEAST_NOMINAL = 1e-15


@dataclass(frozen=True, eq=False)
class AtLook:
    """A test of the pairs that exist at look `look` (from 0) of `looks`."""

    test: TTest
    looks: Looks
    look: int

    @property
    def n(self) -> int:
        """Pairs of seeds so far."""
        return self.test.n

    @property
    def mean(self) -> float:
        """The mean difference so far, which is not adjusted for stopping."""
        return self.test.mean

    @property
    def constant(self) -> bool:
        """True if all differences are equal."""
        return self.test.constant

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided p over all looks."""
        return min(1.0, 2 * self._level(self.test.p_value(null) / 2))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """One-sided p over all looks."""
        return self._level(self.test.one_sided_p(null, greater=greater))

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the null means with p above 1 - level; unbounded where this look can reject
        none."""
        nominal = self._nominal(1 - checked_fraction(level, "level"))
        if nominal < LEAST_NOMINAL:
            return Interval(-math.inf, math.inf, level)
        inner = self.test.interval(1 - nominal)
        return Interval(inner.low, inner.high, level)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the least effect that this look detects with so many pairs and this spread."""
        nominal = self._nominal(alpha)
        if nominal < LEAST_NOMINAL:
            return math.inf
        return self.test.detectable(power=power, alpha=nominal)

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Pairs of a last look that would detect `effect` in a plan of the same proportions.

        Earlier looks can only add to the power.
        """
        nominal = 2 * self.looks.bound(len(self.looks.pairs) - 1, alpha / 2)
        return self.test.pairs_needed(effect, power=power, alpha=nominal)

    def _nominal(self, alpha: float) -> float:
        """Return the two-sided nominal p that is small enough here, of a level `alpha`."""
        return 2 * self.looks.bound(self.look, alpha / 2)

    def _level(self, p: float) -> float:
        return float(self.looks.level(self.look, p))


@dataclass(frozen=True)
class OneLook(Result):
    """Pairs up to look `look` (from 0) of a plan."""

    looks: Looks
    look: int

    def decide(self, test_of: TestOf) -> AtLook:
        """Return the test of all pairs, over all looks."""
        return AtLook(test_of(slice(None)), self.looks, self.look)

    def of_other(self, p: float) -> float:
        """Return the p over all looks of a test with a nominal p of `p` at this one."""
        return min(1.0, 2 * float(self.looks.level(self.look, p / 2)))

    def of_events(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """McNemar's p over all looks."""
        return self.of_other(event_rates(baseline, treatment).p_value)


def predictive_power(
    *,
    n: int,
    mean: float | Floats,
    standard_error: float | Floats,
    looks: Looks,
    look: int,
    alpha: float = ALPHA,
    margin: float | None = None,
    choice: float = 0.0,
) -> Floats:
    """Return the chance, given what is seen, that the last look resolves a contrast; 1 at the last
    look.

    Resolved is an effect, or equivalence where there is a margin, both at level `alpha`. The mean
    of all pairs is predicted from those seen, under a flat prior: Student's t on n - 1 degrees of
    freedom about the mean so far, with squared scale s^2 (1 / n - 1 / N) (Spiegelhalter, Freedman
    and Blackburn 1986, Controlled Clinical Trials 7, 8-17). The spread is taken to stay what it is.

    Args:
        n, mean, standard_error: of the differences so far; arrays are of as many contrasts.
        choice: SD that more pairs cannot reduce, from choosing tuned values.
    """
    mean, error = np.asarray(mean, dtype=float), np.asarray(standard_error, dtype=float)
    if n < 2 or not (error > 0).all():
        raise StatisticsError(
            f"n = {n}, standard_error = {standard_error}: a prediction needs two pairs that differ"
        )
    last = len(looks.pairs) - 1
    if look == last:
        return np.ones_like(mean)
    total = max(looks.pairs[last] * n // looks.pairs[look], n + 1)  # as many are lost as so far
    spread = error * math.sqrt(n)
    scale = spread * math.sqrt(1 / n - 1 / total)

    def below(bound: Floats) -> Floats:
        return stdtr(n - 1, (bound - mean) / scale)

    def reach(level: float) -> Floats:
        reached = np.hypot(spread / math.sqrt(total), choice)
        return -stdtrit(total - 1, looks.bound(last, level)) * reached

    effect = reach(alpha / 2)
    chance = 1 - below(effect) + below(-effect)
    if margin is None:
        return chance
    inside = np.maximum(0.0, margin - reach(alpha))
    # Means so far from 0 that are still inside the margin are both, and count once.
    least = np.minimum(inside, effect)
    return np.minimum(1.0, chance + below(least) - below(-least))
