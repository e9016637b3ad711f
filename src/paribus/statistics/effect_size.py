"""Standardized mean differences of pairs, d_z and its unbiased version g_z."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from .conventions import ALPHA, DESCRIPTIVE_BELOW, Interval, Result, checked_fraction
from .noncentral import noncentrality_interval
from .paired import paired_t
from .scipy_later import gammaln


@dataclass(frozen=True)
class EffectSize(Result):
    """In SDs of the paired differences.

    Every field is None where that SD is 0, an interval where there are fewer than 5 pairs.
    """

    d_z: float | None
    d_z_interval: Interval | None
    g_z: float | None
    g_z_interval: Interval | None


def hedges_correction(df: int) -> float:
    """J(df), by which d overestimates on average; exact, not 1 - 3/(4 df - 1) (Hedges 1981)."""
    return math.exp(gammaln(df / 2) - gammaln((df - 1) / 2)) / math.sqrt(df / 2) if df > 1 else 0.0


def effect_size(deltas: ArrayLike, *, level: float = 1 - ALPHA) -> EffectSize:
    """d_z = mean / SD (Cohen 1988), g_z = J d_z, with noncentral-t intervals.

    The interval of d_z is that of t's noncentrality over sqrt(n) (Steiger and Fouladi 1997); that
    of g_z is the same times J. With 2 pairs J(1) = 0 and g_z is 0: it says nothing.

    Args: deltas of shape (S,), S >= 2.
    """
    level = checked_fraction(level, "level")
    test = paired_t(deltas)
    if test.constant:
        return EffectSize(None, None, None, None)
    t, root = test.statistic(), math.sqrt(test.n)
    correction = hedges_correction(test.df)
    if test.n < DESCRIPTIVE_BELOW:
        return EffectSize(t / root, None, correction * t / root, None)
    low, high = (ncp / root for ncp in noncentrality_interval(t, test.df, level))
    return EffectSize(
        d_z=t / root,
        d_z_interval=Interval(low, high, level),
        g_z=correction * t / root,
        g_z_interval=Interval(correction * low, correction * high, level),
    )
