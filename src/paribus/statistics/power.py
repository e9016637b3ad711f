"""Power, required pairs and detectable effect of Student's t test, from the noncentral t.

SciPy imports its submodules when they are first used (`scipy.special`). That takes half a second
of a core and 30 MiB, and a process that only trains needs none of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import scipy

from .conventions import ALPHA, POWER

MOST_PAIRS = 10**7  # a plan that needs more is not a plan


def root(function: Callable[[float], float], low: float, high: float, within: float = 0.0) -> float:
    """Return the point between `low` and `high` at which a function changes sign, by bisection.

    It is exact to `within`, or to the last bit. SciPy has better methods, but importing them
    takes longer than computing a verdict.
    """
    is_positive = function(low) > 0
    while high - low > within:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if (function(middle) > 0) == is_positive:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def noncentral_t_cdf(t: float, df: float, ncp: float) -> float:
    """Return P(T <= t) of the noncentral t on `df` degrees of freedom; never NaN for finite input.

    SciPy returns NaN at negative t, and if the answer is 0 or 1 in double precision.
    """
    if t < 0:
        return 1.0 - noncentral_t_cdf(-t, df, -ncp)
    p = float(scipy.special.nctdtr(df, ncp, t))
    return float(t > ncp) if math.isnan(p) else p


def t_power(df: float, ncp: float, alpha: float) -> float:
    """Return the power of a two-sided t test at noncentrality `ncp`, counting both tails."""
    critical = float(scipy.special.stdtrit(df, 1 - alpha / 2))
    return noncentral_t_cdf(-critical, df, ncp) + 1 - noncentral_t_cdf(critical, df, ncp)


def noncentrality(df: float, *, power: float, alpha: float) -> float:
    """Return the effect, in standard errors, that a two-sided t test detects with `power`."""
    upper = 1.0
    while t_power(df, upper, alpha) < power:
        upper *= 2
    return root(lambda ncp: t_power(df, ncp, alpha) - power, 0.0, upper)


def required_pairs(
    effect: float,
    sd: float = 1.0,
    *,
    lasting: float = 0.0,
    power: float = POWER,
    alpha: float = ALPHA,
    df_each: float = 1.0,
    item_df: float = math.inf,
) -> int | None:
    """Return the smallest number of pairs with which a paired t test detects `effect`.

    Returns None if even `MOST_PAIRS` pairs are too few.

    Args:
        sd: SD of the differences.
        lasting: standard error that more pairs cannot reduce.
        df_each, item_df: degrees of freedom are df_each * (n - 1), and at most item_df.
    """

    def enough(n: int) -> bool:
        error = math.hypot(sd / math.sqrt(n), lasting)
        return t_power(min(df_each * (n - 1), item_df), abs(effect) / error, alpha) >= power

    if not enough(MOST_PAIRS):
        return None
    return bisect_left(range(MOST_PAIRS), True, lo=2, key=enough)


def minimum_detectable_effect(n: int, *, power: float = POWER, alpha: float = ALPHA) -> float:
    """Return the smallest effect, in SDs of the differences, that n pairs detect."""
    return noncentrality(n - 1, power=power, alpha=alpha) / math.sqrt(n)
