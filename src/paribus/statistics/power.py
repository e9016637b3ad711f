"""Planning: power, pairs needed and detectable effect of the test that decides.

Effects are d_z, in SDs of normal paired differences. All of this is exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from .conventions import (
    ALPHA,
    POWER,
    StatisticsError,
    checked_count,
    checked_fraction,
    checked_positive,
)
from .distributions import noncentral_t_cdf, root, stdtrit

MOST_PAIRS = 10**7  # a plan that needs more is no plan


def paired_t_power(d_z: float, n: int, *, alpha: float = ALPHA) -> float:
    """Probability that the two-sided paired t rejects (Cohen 1988, ch. 2), both tails counted."""
    if not math.isfinite(d_z):
        raise StatisticsError(f"d_z = {d_z} is not finite: pass mean / SD of the differences")
    n = checked_count(n, "n", 2, "a paired t needs two pairs")
    return t_power(n - 1, abs(d_z) * math.sqrt(n), alpha)


def t_power(df: float, ncp: float, alpha: float) -> float:
    """Probability that a two-sided t on `df` rejects, of noncentrality `ncp`: both tails."""
    critical = float(stdtrit(df, 1 - checked_fraction(alpha, "alpha") / 2))
    return noncentral_t_cdf(-critical, df, ncp) + 1 - noncentral_t_cdf(critical, df, ncp)


def least_found(power_at: Callable[[float], float], power: float) -> float:
    """Return the least size at which a power that rises with it is `power`."""
    most = 1.0
    while power_at(most) < power:
        most *= 2
    return root(lambda size: power_at(size) - power, 0.0, most)


def require_power(power: float, alpha: float) -> None:
    """Raise StatisticsError for a power that no effect at all has."""
    power, alpha = checked_fraction(power, "power"), checked_fraction(alpha, "alpha")
    if power <= alpha:
        raise StatisticsError(f"power = {power} is not above alpha = {alpha}: ask for more power")


def required_pairs(d_z: float, *, power: float = POWER, alpha: float = ALPHA) -> int:
    """Return the fewest pairs with which the paired t has at least that power."""
    d_z = checked_positive(abs(d_z), "d_z")
    power = checked_fraction(power, "power")
    found = fewest(lambda n: paired_t_power(d_z, n, alpha=alpha) >= power, MOST_PAIRS)
    if found is None:
        raise StatisticsError(
            f"d_z = {d_z:g} needs more than {MOST_PAIRS} pairs: reduce the SD or the claim"
        )
    return found


def fewest(enough: Callable[[int], bool], most: int, *, least: int = 2) -> int | None:
    """Return the least number from `least` that is enough, and all above it; None above `most`."""
    high, step = least, 1
    while not enough(high):
        high, step = high + step, 2 * step
        if high > most:
            return None
    return bisect_left(range(high), True, lo=max(least, high - step // 2), key=enough)


def minimum_detectable_effect(n: int, *, power: float = POWER, alpha: float = ALPHA) -> float:
    """Return the least d_z that n pairs detect with that power."""
    require_power(power, alpha)
    return least_found(lambda d_z: paired_t_power(d_z, n, alpha=alpha), power)
