"""Two stages, the second planned when the first had been seen: the inverse-normal combination.

Of one-sided p-values of stages that share no pair, against one null mean,

    z = w_1 z_1 + w_2 z_2, z_i the normal quantile of 1 - p_i, w_1^2 + w_2^2 = 1,

is standard normal where there is no effect, if the weights were fixed before the first stage was
seen (Lehmacher and Wassmer 1999, Biometrics 55, 1286-1290). The size of the second stage may then
follow from the first in any way. Weights of the sizes themselves may not be used where the second
was chosen with the first in view: they would be chosen with it. The interval inverts the test: the
null means against which the combined p is large. The estimate is the mean against which both sides
are equally likely, which is median unbiased.

What it cannot do is give back what the first stage has used up. Where that was tested at the full
level and could have ended in a claim, the chance of a false claim at either stage is
`error_of_either`: 8.3% for equal stages at 5%, the known price of a second look at an unadjusted
level (Armitage, McPherson and Rowe 1969). Given that the first stage claimed nothing, that of the
combination is at most the level (Sidak's inequality). Looks that are planned have no such price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..conventions import ALPHA, Interval, Result, StatisticsError, checked_fraction
from ..deciding import DecidingTest, TestOf
from ..distributions import bdtr, ndtr, ndtri, quad, root
from ..paired import LEAST
from .at_look import AtLook, OneLook

NEAREST_TO_ONE = 1 - 1e-15
WIDEST = 1e9  # half-widths of the stages' own intervals, beyond which a bound is taken as infinite


def stage_weights(first: float) -> tuple[float, float]:
    """Weights of two stages, where `first` is the square of the first's; a half weighs both alike.

    Power is greatest where it is the share that the first stage has of all pairs.
    """
    first = checked_fraction(first, "first")
    return math.sqrt(first), math.sqrt(1 - first)


def combined_p(p_values: Sequence[float], weights: Sequence[float]) -> float:
    """One-sided p of stages with these one-sided p, never 0."""
    z = 0.0
    for p, weight in zip(p_values, weights, strict=True):
        z -= weight * float(ndtri(min(max(p, LEAST), NEAREST_TO_ONE)))
    return max(LEAST, float(ndtr(-z)))


def combined_mcnemar(
    stages: Sequence[tuple[int, int]],
    weights: Sequence[float],
    over_looks: Callable[[float], float] | None = None,
) -> float:
    """Two-sided p of McNemar's exact test of each stage, combined.

    A stage without a discordant pair says nothing of the arms and is left out. Where that is the
    second, what is claimed could have been claimed of the first, so that `error_of_either` holds;
    where it is the first, it claimed nothing. The side is that of the counts of both.

    Args:
        stages: pairs with an event of the baseline only, and of the treatment only.
        over_looks: makes a one-sided p of the first stage one over the looks that it had.
    """
    fewer = sum(b for b, _ in stages) >= sum(c for _, c in stages)
    p_values, weighing = [], []
    for number, ((b, c), weight) in enumerate(zip(stages, weights, strict=True)):
        if not b + c:
            continue
        p = float(bdtr(c if fewer else b, b + c, 0.5))
        p_values.append(over_looks(p) if over_looks and number == 0 else p)
        weighing.append(weight)
    if not p_values:
        return 1.0
    whole = math.hypot(*weighing)
    return min(1.0, 2 * combined_p(p_values, [weight / whole for weight in weighing]))


@dataclass(frozen=True, eq=False)
class InverseNormal:
    """The combination of one deciding test per stage, with weights that were fixed in advance."""

    tests: tuple[DecidingTest, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.tests) != len(self.weights) or not self.tests:
            raise StatisticsError(
                f"{len(self.tests)} stages have {len(self.weights)} weights: state one for each"
            )
        if not math.isclose(sum(w * w for w in self.weights), 1, abs_tol=1e-9):
            raise StatisticsError(f"squares of weights {self.weights} do not sum to 1: rescale")

    @property
    def n(self) -> int:
        """Pairs of all stages."""
        return sum(test.n for test in self.tests)

    @property
    def constant(self) -> bool:
        """True if differences are equal within every stage."""
        return all(test.constant for test in self.tests)

    @property
    def mean(self) -> float:
        """The null mean against which both one-sided p are equal."""
        if len({test.mean for test in self.tests}) == 1:
            return self.tests[0].mean

        def difference(null: float) -> float:
            return self.one_sided_p(null, greater=True) - self.one_sided_p(null, greater=False)

        means = [test.mean for test in self.tests]
        return _root(difference, min(means), max(means), self._unit)

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided p, never 0."""
        sides = (self.one_sided_p(null, greater=greater) for greater in (True, False))
        return min(1.0, 2 * min(sides))

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """p against "the mean is at most null" (greater) or "at least null" (not greater)."""
        p_values = [test.one_sided_p(null, greater=greater) for test in self.tests]
        return combined_p(p_values, self.weights)

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the null means with p above 1 - level."""
        tail, middle = (1 - checked_fraction(level, "level")) / 2, self.mean

        def above(null: float) -> float:
            return self.one_sided_p(null, greater=True) - tail

        def below(null: float) -> float:
            return tail - self.one_sided_p(null, greater=False)

        low = _root(above, middle - self._unit, middle, self._unit)
        return Interval(low, _root(below, middle, middle + self._unit, self._unit), level)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the least effect that stages of such precision would detect, from theirs alone.

        Each stage's own value is a multiple of its standard error; precisions add as weights do.
        """
        shares = [
            weight / test.detectable(power=power, alpha=alpha)
            for test, weight in zip(self.tests, self.weights, strict=True)
        ]
        return 1 / sum(shares) if sum(shares) else math.inf

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Pairs that would detect `effect`, by the spread of the largest stage."""
        largest = max(self.tests, key=lambda test: test.n)
        return largest.pairs_needed(effect, power=power, alpha=alpha)

    @property
    def _unit(self) -> float:
        """A width to search with: the narrowest finite interval of a stage."""
        widths = [test.interval(1 - ALPHA) for test in self.tests]
        finite = [i.high - i.low for i in widths if math.isfinite(i.high - i.low)]
        spread = max(test.mean for test in self.tests) - min(test.mean for test in self.tests)
        return max(min(finite, default=1.0), spread) or 1.0


@dataclass(frozen=True)
class Stages(Result):
    """Two stages.

    Attributes:
        first: pairs of the first stage, of those there are.
        weights: of both stages, as they were fixed before the first was seen.
        look: of a plan, in which the first stage ended; None where its size was fixed.
    """

    first: int
    weights: tuple[float, float]
    look: OneLook | None = None

    def decide(self, test_of: TestOf) -> DecidingTest:
        """Return the inverse-normal combination of a test of each stage."""
        before, after = slice(None, self.first), slice(self.first, None)
        if self.look is None:
            return InverseNormal((test_of(before), test_of(after)), self.weights)
        ended = AtLook(test_of(before), self.look.looks, self.look.look)
        return InverseNormal((ended, test_of(after)), self.weights)

    def of_other(self, p: float) -> float | None:
        """None: one p of all pairs is not one of stages."""
        return None

    def of_events(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """Return the inverse-normal combination of McNemar's test of each stage."""
        pairs = list(zip(baseline, treatment, strict=True))
        parts = pairs[: self.first], pairs[self.first :]
        counts = [(part.count((True, False)), part.count((False, True))) for part in parts]
        return combined_mcnemar(counts, self.weights, self.look.one_sided if self.look else None)


def error_of_either(weights: tuple[float, float], alpha: float = ALPHA) -> float:
    """Return the chance that a two-sided test of level `alpha` of the first stage rejects, or that
    of the combination does, where there is no effect."""
    z, (first, second) = -float(ndtri(checked_fraction(alpha, "alpha") / 2)), weights

    def neither(x: float) -> float:
        inside = ndtr((z - first * x) / second) - ndtr((-z - first * x) / second)
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * float(inside)

    return 1 - quad(neither, -z, z, epsabs=1e-12)[0]


def _root(rising: Callable[[float], float], low: float, high: float, unit: float) -> float:
    """Return where a rising function crosses 0, searched outwards; infinite where it does not."""
    step = unit
    while rising(low) > 0:
        low, step = low - step, 2 * step
        if step > WIDEST * unit:
            return -math.inf
    step = unit
    while rising(high) < 0:
        high, step = high + step, 2 * step
        if step > WIDEST * unit:
            return math.inf
    if rising(low) == 0 or low == high:
        return low
    return root(rising, low, high, within=1e-13 * max(unit, abs(low), abs(high)))
