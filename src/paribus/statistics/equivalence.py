"""Showing that there is no effect worth having: two one-sided tests."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from .conventions import ALPHA, Interval, Result, checked_fraction, checked_positive
from .paired import paired_t


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
    """Two one-sided paired t tests (Schuirmann 1987).

    Equivalent at level alpha exactly when the 1 - 2 alpha interval lies within the margin; that is
    how it is decided. Constant differences follow the rule in `paired`.

    Args: deltas of shape (S,), S >= 2; margin > 0 in their unit.
    """
    margin, alpha = checked_positive(margin, "margin"), checked_fraction(alpha, "alpha")
    test = paired_t(deltas)
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
