"""Power, sample size and minimum detectable effect of Student's t-test (noncentral t).

SciPy submodules are imported lazily (`scipy.special`), because the import takes half a second and
30 MiB, and training processes do not need them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import scipy

from .conventions import ALPHA, POWER

MOST_PAIRS = 10**7  # a plan that needs more is not a plan


def root(function: Callable[[float], float], low: float, high: float, within: float = 0.0) -> float:
    """Find the sign change of a function between `low` and `high` by bisection.

    `within` is the absolute tolerance; 0 means floating-point precision. This replaces SciPy's root
    finders, whose import takes longer than the computation of a verdict.
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
    """Return the CDF of the noncentral t distribution, which is never NaN for finite arguments.

    This wraps SciPy's function, which returns NaN for negative t and for results that round to 0
    or 1.
    """
    if t < 0:
        return 1.0 - noncentral_t_cdf(-t, df, -ncp)
    p = float(scipy.special.nctdtr(df, ncp, t))
    return float(t > ncp) if math.isnan(p) else p


def t_power(df: float, ncp: float, alpha: float) -> float:
    """Return the power of a two-sided t-test with noncentrality parameter `ncp`."""
    critical = float(scipy.special.stdtrit(df, 1 - alpha / 2))
    return noncentral_t_cdf(-critical, df, ncp) + 1 - noncentral_t_cdf(critical, df, ncp)


def noncentrality(df: float, *, power: float, alpha: float) -> float:
    """Return the effect that a two-sided t-test detects with `power`, in standard errors."""
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
    """Return the number of pairs with which a paired t-test detects `effect`.

    Returns None if more than `MOST_PAIRS` pairs are needed.

    Args:
        effect: mean difference to detect.
        sd: SD of the differences.
        lasting: standard error that does not decrease with the number of pairs.
        power: probability of detection.
        alpha: two-sided significance level.
        df_each, item_df: n pairs have min(df_each * (n - 1), item_df) degrees of freedom.
    """

    def enough(n: int) -> bool:
        error = math.hypot(sd / math.sqrt(n), lasting)
        return t_power(min(df_each * (n - 1), item_df), abs(effect) / error, alpha) >= power

    if not enough(MOST_PAIRS):
        return None
    return bisect_left(range(MOST_PAIRS), True, lo=2, key=enough)


def minimum_detectable_effect(
    n: int, *, power: float = POWER, alpha: float = ALPHA, samples: int = 1
) -> float:
    """Return the minimum detectable effect for n pairs, in SDs of the differences.

    With two samples of n unpaired runs, the effect is in SDs of one run.
    """
    detected = noncentrality(samples * (n - 1), power=power, alpha=alpha)
    return detected * math.sqrt(samples / n)
