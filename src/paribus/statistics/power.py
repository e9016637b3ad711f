"""Planning: power, pairs needed and detectable effect of Student's t. All of this is exact."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from .conventions import ALPHA, POWER, StatisticsError, checked_fraction, checked_positive
from .distributions import noncentral_t_cdf, root, stdtrit

MOST_PAIRS = 10**7  # a plan that needs more is no plan


def t_power(df: float, ncp: float, alpha: float) -> float:
    """Probability that a two-sided t on `df` rejects, of noncentrality `ncp`: both tails."""
    critical = float(stdtrit(df, 1 - checked_fraction(alpha, "alpha") / 2))
    return noncentral_t_cdf(-critical, df, ncp) + 1 - noncentral_t_cdf(critical, df, ncp)


def noncentrality(df: float, *, power: float, alpha: float) -> float:
    """Return the effect in standard errors that a two-sided t on `df` detects with that power."""
    power, alpha = checked_fraction(power, "power"), checked_fraction(alpha, "alpha")
    if power <= alpha:
        raise StatisticsError(f"power = {power} is not above alpha = {alpha}: ask for more power")
    most = 1.0
    while t_power(df, most, alpha) < power:
        most *= 2
    return root(lambda ncp: t_power(df, ncp, alpha) - power, 0.0, most)


def fewest(enough: Callable[[int], bool], most: int) -> int | None:
    """Return the least number from 2 that is enough, and all above it; None above `most`."""
    high, step = 2, 1
    while not enough(high):
        high, step = high + step, 2 * step
        if high > most:
            return None
    return bisect_left(range(high), True, lo=max(2, high - step // 2), key=enough)


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
    """Return the fewest pairs with which the paired t detects `effect`; None where none do.

    Args: sd: of the differences. lasting: standard error that more pairs cannot reduce.
        df_each, item_df: degrees of freedom are df_each * (n - 1), and at most item_df.
    """
    effect, power = checked_positive(abs(effect), "effect"), checked_fraction(power, "power")

    def enough(n: int) -> bool:
        error = math.hypot(sd / math.sqrt(n), lasting)
        return t_power(min(df_each * (n - 1), item_df), effect / error, alpha) >= power

    return fewest(enough, MOST_PAIRS) if enough(MOST_PAIRS) else None


def minimum_detectable_effect(n: int, *, power: float = POWER, alpha: float = ALPHA) -> float:
    """Return the least effect, in SDs of the differences, that n pairs detect."""
    return noncentrality(n - 1, power=power, alpha=alpha) / math.sqrt(n)
