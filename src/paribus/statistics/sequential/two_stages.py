"""Two stages, combined by the inverse-normal method (Lehmacher and Wassmer 1999).

Of one-sided p-values p_1 and p_2 of stages that share no pair, against one null mean,

    z = w_1 z_1 + w_2 z_2,    z_i = Phi^-1(1 - p_i),    w_1^2 + w_2^2 = 1,

is standard normal without an effect, if the weights were fixed before the first stage was seen
(Biometrics 55, 1286-1290). The size of the second stage may then depend on the first in any way.
The interval inverts the test. The estimate is the null mean with equal p-values on both sides,
which is median unbiased.

A first stage that was tested by itself has used its level already. `error_of_either` is the chance
of a false claim at either stage: 8.3% for equal weights at 5% (Armitage, McPherson and Rowe 1969).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..conventions import ALPHA, Interval, Result, StatisticsError, checked_fraction
from ..deciding import DecidingTest, TestOf
from ..distributions import bdtr, ndtr, ndtri, quad, root
from ..paired import LEAST

NEAREST_TO_ONE = 1 - 1e-15


def stage_weights(first: float) -> tuple[float, float]:
    """Return the weights of two stages, where `first` is the square of the first one's."""
    first = checked_fraction(first, "first")
    return math.sqrt(first), math.sqrt(1 - first)


def combined_p(p_values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the one-sided p of stages with these one-sided p-values, never 0."""
    clipped = [min(max(p, LEAST), NEAREST_TO_ONE) for p in p_values]
    z = sum(w * float(ndtri(p)) for p, w in zip(clipped, weights, strict=True))
    return max(LEAST, float(ndtr(z)))


def combined_mcnemar(stages: Sequence[tuple[int, int]], weights: Sequence[float]) -> float:
    """Return the two-sided p of McNemar's exact tests of the stages, combined.

    Args:
        stages: of each stage, the pairs with an event in the baseline only and in the treatment
            only. A stage without either is excluded, and the other weights are rescaled.
    """
    parts = [(b, c, w) for (b, c), w in zip(stages, weights, strict=True) if b + c]
    if not parts:
        return 1.0
    more_in_baseline = sum(b - c for b, c, _ in parts) >= 0
    p = [float(bdtr(c if more_in_baseline else b, b + c, 0.5)) for b, c, _ in parts]
    length = math.hypot(*(w for _, _, w in parts))
    return min(1.0, 2 * combined_p(p, [w / length for _, _, w in parts]))


def error_of_either(weights: tuple[float, float], alpha: float = ALPHA) -> float:
    """Return the chance of a false claim at the first stage or of both, each tested at `alpha`."""
    z, (first, second) = -float(ndtri(checked_fraction(alpha, "alpha") / 2)), weights

    def neither(x: float) -> float:
        inside = ndtr((z - first * x) / second) - ndtr((-z - first * x) / second)
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * float(inside)

    return 1 - quad(neither, -z, z, epsabs=1e-12)[0]


@dataclass(frozen=True, eq=False)
class InverseNormal:
    """The combination of a deciding test per stage."""

    tests: tuple[DecidingTest, DecidingTest]
    weights: tuple[float, float]

    def __post_init__(self) -> None:
        if not math.isclose(sum(w * w for w in self.weights), 1, abs_tol=1e-9):
            raise StatisticsError(
                f"squares of weights {self.weights} do not sum to 1; rescale them"
            )

    @property
    def n(self) -> int:
        """Pairs of both stages."""
        return sum(test.n for test in self.tests)

    @property
    def constant(self) -> bool:
        """Whether differences are equal within each stage."""
        return all(test.constant for test in self.tests)

    @property
    def mean(self) -> float:
        """The null mean against which both one-sided p-values are equal."""
        means = [test.mean for test in self.tests]
        return self._crossing(0.0, min(means), max(means))

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p, never 0."""
        sides = (self.one_sided_p(null, greater=greater) for greater in (True, False))
        return min(1.0, 2 * min(sides))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """Return p against "the mean is at most null", or "at least null" if not greater."""
        p_values = [test.one_sided_p(null, greater=greater) for test in self.tests]
        return combined_p(p_values, self.weights)

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the null means with a two-sided p above 1 - level.

        Each end lies between the estimate and the outermost end of the stages' own intervals,
        because the weights sum to at least 1.
        """
        z, mean = -float(ndtri((1 - checked_fraction(level, "level")) / 2)), self.mean
        stages = [test.interval(level) for test in self.tests]
        low = self._crossing(-z, min(stage.low for stage in stages), mean)
        return Interval(low, self._crossing(z, mean, max(stage.high for stage in stages)), level)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the smallest effect that two such stages detect.

        The value of each stage is a multiple of its standard error, and precisions add by weight.
        """
        precisions = [
            weight / test.detectable(power=power, alpha=alpha)
            for test, weight in zip(self.tests, self.weights, strict=True)
        ]
        return 1 / sum(precisions) if sum(precisions) else math.inf

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Return the pairs that detect `effect` with the spread of the larger stage."""
        largest = max(self.tests, key=lambda test: test.n)
        return largest.pairs_needed(effect, power=power, alpha=alpha)

    def _crossing(self, z: float, low: float, high: float) -> float:
        """Return the null mean in [low, high] whose lower one-sided z is `z`."""

        def excess(null: float) -> float:
            # The smaller p of both sides is the exact one; the other is near 1.
            below = self.one_sided_p(null, greater=False)
            above = self.one_sided_p(null, greater=True)
            return (float(-ndtri(below)) if below < above else float(ndtri(above))) - z

        if not (math.isfinite(low) and math.isfinite(high)):
            return low if z < 0 else high
        if low == high or excess(low) >= 0:
            return low
        if excess(high) <= 0:
            return high
        return root(excess, low, high, within=1e-13 * max(high - low, abs(low), abs(high)))


@dataclass(frozen=True)
class Stages(Result):
    """The design of a study with a second stage.

    Attributes:
        first: pairs of the first stage that can be compared.
        weights: of both stages, fixed before the first was seen.
    """

    first: int
    weights: tuple[float, float]

    def decide(self, test_of: TestOf) -> DecidingTest:
        """Return the combination of a test of each stage."""
        tests = test_of(slice(None, self.first)), test_of(slice(self.first, None))
        return InverseNormal(tests, self.weights)

    def of_other(self, p: float) -> float | None:
        """Return None: a p-value of all pairs is not one of two stages."""
        return None

    def of_events(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """Return the p of McNemar's tests of the stages, combined."""
        pairs = list(zip(baseline, treatment, strict=True))
        parts = pairs[: self.first], pairs[self.first :]
        counts = [(part.count((True, False)), part.count((False, True))) for part in parts]
        return combined_mcnemar(counts, self.weights)
