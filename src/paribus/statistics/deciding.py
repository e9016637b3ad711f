"""The test that decides, and all that is said of it: p, intervals, equivalence, power.

Whatever decides, its p and its intervals invert the same test, and what it could have detected is
its own. Student's t decides on seed means, and `Crossed` on claims about new items. At a nominal 5%
and five pairs, the t rejects 5.0% of true nulls under a normal law, 8.5% under a lognormal one with
sigma 0.5 and 17.8% with sigma 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from numpy.typing import ArrayLike

from .bootstrap import PairedBootstrap, paired_bootstrap
from .conventions import (
    ALPHA,
    DESCRIPTIVE_BELOW,
    POWER,
    RESAMPLES,
    Floats,
    Interval,
    Result,
    StatisticsError,
    checked_fraction,
    checked_positive,
    checked_scores,
)
from .paired import PairedT, paired_t
from .power import minimum_detectable_effect, required_pairs

CROSSED = ("crossed_components", "crossed_bootstrap", "crossed_welch")  # of seeds and items


class DecidingTest(Protocol):
    """A test of a mean difference, with all that follows from it, in the endpoint's unit."""

    @property
    def n(self) -> int:
        """Pairs of seeds."""
        ...

    @property
    def mean(self) -> float:
        """The mean difference."""
        ...

    @property
    def constant(self) -> bool:
        """True if nothing varies: what is said is then the measurement's resolution."""
        ...

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided p."""
        ...

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """p against "the mean is at most null" (greater) or "at least null" (not greater)."""
        ...

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the null means with p above 1 - level."""
        ...

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the least effect that this test detects with so many pairs and this spread."""
        ...

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Pairs with which this test would detect `effect`; None where no number is known."""
        ...


INTERVAL_FROM = 3  # pairs, or runs of each arm

# A test of some of the pairs.
TestOf = Callable[[slice], DecidingTest]


@dataclass(frozen=True, eq=False)
class SeedTest:
    """The paired t test of seed means, and the bootstrap that stands beside it."""

    deltas: Floats
    seed: int
    resamples: int
    resolution: float | None = None
    rounded: bool = False  # scores are rounded to the resolution

    @cached_property
    def t(self) -> PairedT:
        """Student's t of the differences."""
        return paired_t(self.deltas, resolution=self.resolution, rounded=self.rounded)

    @cached_property
    def bootstrap(self) -> PairedBootstrap:
        """Their bootstrap; drawn when it is first asked for."""
        return paired_bootstrap(
            self.deltas, seed=self.seed, resamples=self.resamples, resolution=self.resolution
        )

    @property
    def n(self) -> int:
        """Pairs of seeds."""
        return self.t.n

    @property
    def mean(self) -> float:
        """The mean difference."""
        return self.t.mean

    @property
    def constant(self) -> bool:
        """True if all differences are equal."""
        return self.t.constant

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided p of "the mean is null"."""
        return self.t.p_value(null)

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """p against "the mean is at most null" (greater) or "at least null" (not greater)."""
        return self.t.one_sided_p(null, greater=greater)

    def interval(self, level: float = 1 - ALPHA) -> Interval:
        """Return the null means with p above 1 - level."""
        return self.t.interval(level)

    def detectable(self, *, power: float, alpha: float) -> float:
        """Return the least mean difference detected with that power by so many pairs of this SD."""
        if self.constant:
            return self.t.resolution
        return self.t.spread * minimum_detectable_effect(self.n, power=power, alpha=alpha)

    def pairs_needed(self, effect: float, *, power: float, alpha: float) -> int | None:
        """Pairs that detect `effect` at this SD; None where nothing varies, or no number does."""
        if self.constant:
            return None
        try:
            return required_pairs(effect / self.t.spread, power=power, alpha=alpha)
        except StatisticsError:
            return None


def seed_test(
    deltas: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    rounded: bool = False,
) -> SeedTest:
    """Return the paired t test of differences of shape (S,), S >= 2."""
    return SeedTest(checked_scores(deltas, "deltas"), seed, resamples, resolution, rounded)


@dataclass(frozen=True)
class Decided(Result):
    """All that the deciding test says of one contrast.

    Attributes:
        test: `paired_t` or one of CROSSED.
        constant: nothing varies; p is the least that the measurement's resolution allows, and the
            interval a point up to that resolution.
        interval: of level 1 - alpha; leaves 0 out exactly where p_value <= alpha.
        simultaneous_interval: of level 1 - alpha / family (Bonferroni), for reading all of a
            family's intervals at once.
        equivalence_interval: of level 1 - 2 alpha; lies within the margin exactly where
            equivalence_p, of two one-sided tests, is <= alpha.
        detectable: the least effect detected at the power, at level alpha / family.
    """

    test: str
    n: int
    descriptive_only: bool
    constant: bool
    mean: float
    p_value: float
    interval: Interval
    family: int
    simultaneous_interval: Interval
    equivalence_interval: Interval
    margin: float | None
    equivalence_p: float | None
    equivalent: bool | None  # by itself; a family is adjusted by its reader
    detectable: float

    @property
    def has_interval(self) -> bool:
        """Return whether intervals are stated: two runs or pairs are too few for an SD."""
        return self.n >= INTERVAL_FROM


def decided(
    test: DecidingTest,
    name: str,
    *,
    margin: float | None = None,
    alpha: float = ALPHA,
    family: int = 1,
    power: float = POWER,
) -> Decided:
    """State what `test` says, in a family of so many hypotheses.

    Equivalence is by two one-sided tests, both of them `test` (Schuirmann 1987).
    """
    alpha = checked_fraction(alpha, "alpha")
    inner = test.interval(1 - 2 * alpha)
    equivalence_p = equivalent = None
    if margin is not None:
        margin = checked_positive(margin, "margin")
        p_low = test.one_sided_p(-margin, greater=True)
        p_high = test.one_sided_p(margin, greater=False)
        equivalence_p, equivalent = max(p_low, p_high), inner.inside(margin)
    return Decided(
        test=name,
        n=test.n,
        descriptive_only=test.n < DESCRIPTIVE_BELOW,
        constant=test.constant,
        mean=test.mean,
        p_value=test.p_value(),
        interval=test.interval(1 - alpha),
        family=family,
        simultaneous_interval=test.interval(1 - alpha / family),
        equivalence_interval=inner,
        margin=margin,
        equivalence_p=equivalence_p,
        equivalent=equivalent,
        detectable=test.detectable(power=power, alpha=alpha / family),
    )
