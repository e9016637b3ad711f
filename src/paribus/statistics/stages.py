"""Two-stage tests by the inverse-normal combination method (Lehmacher and Wassmer 1999).

For one-sided p-values p_1 and p_2 of two stages with disjoint pairs and the same null hypothesis,

    z = w_1 z_1 + w_2 z_2,    z_i = Phi^-1(1 - p_i),    w_1^2 + w_2^2 = 1,

is standard normal under the null hypothesis, provided that the weights were fixed before any
results of the first stage (Biometrics 55, 1286-1290). The size of the second stage may depend on
the first in any way. The interval inverts the test. The estimate is the null mean at which both
one-sided p-values are equal, which is median unbiased.

If the first stage was also tested on its own, the type I error over both tests is larger: 8.3% for
a level of 5% and equal weights (Armitage, McPherson and Rowe 1969).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import scipy

from .conventions import ALPHA, Interval
from .power import root
from .t_test import LEAST, TestOf, TTest

NEAREST_TO_ONE = 1 - 1e-15


def stage_weights(first: float) -> tuple[float, float]:
    """Return the weights of two stages, given the squared weight of the first."""
    return math.sqrt(first), math.sqrt(1 - first)


def combined_p(p_values: Sequence[float], weights: Sequence[float]) -> float:
    """Combine one-sided p-values by the inverse-normal method, and return a p-value above 0."""
    clipped = [min(max(p, LEAST), NEAREST_TO_ONE) for p in p_values]
    z = sum(w * float(scipy.special.ndtri(p)) for p, w in zip(clipped, weights, strict=True))
    return max(LEAST, float(scipy.special.ndtr(z)))


def combined_mcnemar(stages: Sequence[tuple[int, int]], weights: Sequence[float]) -> float:
    """Combine the exact McNemar tests of several stages to a two-sided p-value.

    Args:
        stages: (pairs with an event only in the baseline, pairs with an event only in the
            treatment) for each stage. Stages without such pairs are excluded.
        weights: weight of each stage; weights are rescaled if stages are excluded.
    """
    parts = [(b, c, w) for (b, c), w in zip(stages, weights, strict=True) if b + c]
    if not parts:
        return 1.0
    more_in_baseline = sum(b - c for b, c, _ in parts) >= 0
    p = [float(scipy.special.bdtr(c if more_in_baseline else b, b + c, 0.5)) for b, c, _ in parts]
    length = math.hypot(*(w for _, _, w in parts))
    return min(1.0, 2 * combined_p(p, [w / length for _, _, w in parts]))


@dataclass(frozen=True, eq=False, kw_only=True)
class InverseNormal(TTest):
    """Two-stage t-test, combined by the inverse-normal method.

    Both stages use the same selected hyperparameters. The error due to this selection is therefore
    added to the combined error, by scaling the distance between mean and null mean.

    Attributes:
        tests: tests of both stages.
        weights: weights of both stages.
    """

    tests: tuple[TTest, TTest]
    weights: tuple[float, float]

    @property
    def _nearer(self) -> float:
        return self.standard_error / self.full_error

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p-value for a mean of `null`, which is never 0."""
        sides = (self.one_sided_p(null, greater=greater) for greater in (True, False))
        return min(1.0, 2 * min(sides))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """Return the p-value for H0: mean <= null if `greater`, or H0: mean >= null otherwise."""
        if self.choice:
            null = self.mean - (self.mean - null) * self._nearer
        return self._combined(null, greater=greater)

    def _combined(self, null: float, *, greater: bool) -> float:
        p_values = [test.one_sided_p(null, greater=greater) for test in self.tests]
        return combined_p(p_values, self.weights)

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the confidence interval, which contains null means with p-values above 1 - level.

        Each bound lies between the estimate and the outermost bound of both stages' intervals,
        because the weights sum to at least 1.
        """
        z, mean = -float(scipy.special.ndtri((1 - level) / 2)), self.mean
        stages = [test.interval(level) for test in self.tests]
        low = self._crossing(-z, min(stage.low for stage in stages), mean)
        high = self._crossing(z, mean, max(stage.high for stage in stages))
        low, high = (mean + (end - mean) / self._nearer for end in (low, high))
        return Interval(low, high)

    def centred(self) -> InverseNormal:
        """Return a copy whose `mean` is the median-unbiased estimate."""
        means = [test.mean for test in self.tests]
        return replace(self, mean=self._crossing(0.0, min(means), max(means)))

    def _crossing(self, z: float, low: float, high: float) -> float:
        """Return the null mean in [low, high] whose combined lower-tailed statistic equals `z`."""

        def excess(null: float) -> float:
            # The smaller p of both sides is the exact one; the other is near 1.
            below = self._combined(null, greater=False)
            above = self._combined(null, greater=True)
            quantile = scipy.special.ndtri(min(below, above))
            return float(-quantile if below < above else quantile) - z

        if not (math.isfinite(low) and math.isfinite(high)):
            return low if z < 0 else high
        if low == high or excess(low) >= 0:
            return low
        if excess(high) <= 0:
            return high
        return root(excess, low, high, within=1e-13 * max(high - low, abs(low), abs(high)))


@dataclass(frozen=True)
class Stages:
    """Two-stage sampling design.

    Attributes:
        first: number of pairs in the first stage.
        weights: weights of both stages, fixed before any results.
    """

    first: int
    weights: tuple[float, float]

    def decide(self, test_of: TestOf) -> InverseNormal:
        """Return the combined test of both stages."""
        stages = (test_of(slice(None, self.first)), test_of(slice(self.first, None)))
        alone = replace(stages[0], choice=0.0), replace(stages[1], choice=0.0)
        whole = test_of(slice(None))
        constant = all(test.constant for test in alone) and not whole.choice
        combined = vars(whole) | {"constant": constant, "tests": alone, "weights": self.weights}
        return InverseNormal(**combined).centred()

    def events_p(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """Return the combined p-value of both stages' McNemar tests for paired events."""
        pairs = list(zip(baseline, treatment, strict=True))
        parts = pairs[: self.first], pairs[self.first :]
        counts = [(part.count((True, False)), part.count((False, True))) for part in parts]
        return combined_mcnemar(counts, self.weights)
