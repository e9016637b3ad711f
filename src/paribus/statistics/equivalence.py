"""Showing that there is no effect worth having: two one-sided tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from numpy.typing import ArrayLike

from .conventions import ALPHA, Interval, Result, checked_fraction, checked_positive
from .paired import paired_t


class OneSided(Protocol):
    """A test that has one-sided p-values, and intervals that invert them."""

    def one_sided_p(self, null: float, *, greater: bool) -> float:
        """p against "the mean is at most null" (greater) or "at least null" (not greater)."""
        ...

    def interval(self, level: float) -> Interval:
        """The null means with two-sided p above 1 - level."""
        ...


@dataclass(frozen=True)
class Equivalence(Result):
    """Outcome of two one-sided tests against +-margin."""

    margin: float
    p_low: float  # against "the mean is at most -margin"
    p_high: float  # against "the mean is at least +margin"
    p_value: float  # the larger of the two: both must reject
    interval: Interval  # of level 1 - 2 alpha
    equivalent: bool


def two_one_sided_tests(deltas: ArrayLike, *, margin: float, alpha: float = ALPHA) -> Equivalence:
    """Two one-sided paired t tests (Schuirmann 1987), see `equivalence`.

    Args: deltas of shape (S,), S >= 2; margin > 0 in their unit.
    """
    return equivalence(paired_t(deltas), margin=margin, alpha=alpha)


def equivalence(test: OneSided, *, margin: float, alpha: float = ALPHA) -> Equivalence:
    """Two one-sided tests, both of them `test`.

    Equivalent at level alpha exactly when the test's 1 - 2 alpha interval lies within the margin;
    that is how it is decided.
    """
    margin, alpha = checked_positive(margin, "margin"), checked_fraction(alpha, "alpha")
    interval = test.interval(1 - 2 * alpha)
    p_low = test.one_sided_p(-margin, greater=True)
    p_high = test.one_sided_p(margin, greater=False)
    return Equivalence(
        margin=margin,
        p_low=p_low,
        p_high=p_high,
        p_value=max(p_low, p_high),
        interval=interval,
        equivalent=interval.inside(margin),
    )
