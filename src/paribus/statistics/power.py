"""Planning: power, pairs needed and detectable effect of the two-sided paired t.

Effects are d_z, in SDs of the paired differences. The gate p-value rejects less often than the t
(by construction), so these are the least numbers of pairs, not generous ones.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import stdtrit

from .conventions import (
    ALPHA,
    POWER,
    StatisticsError,
    checked_count,
    checked_fraction,
    checked_positive,
)
from .noncentral import noncentral_t_cdf

MOST_PAIRS = 10**7  # a plan that needs more is no plan


def paired_t_power(d_z: float, n: int, *, alpha: float = ALPHA) -> float:
    """Probability that the two-sided paired t rejects (Cohen 1988, ch. 2), both tails counted."""
    if not math.isfinite(d_z):
        raise StatisticsError(f"d_z = {d_z} is not finite: pass mean / SD of the differences")
    n = checked_count(n, "n", 2, "a paired t needs two pairs")
    critical = float(stdtrit(n - 1, 1 - checked_fraction(alpha, "alpha") / 2))
    ncp = abs(d_z) * math.sqrt(n)
    # P(T > c) as P(-T < -c), with ncp negated, keeps small probabilities exact.
    return noncentral_t_cdf(-critical, n - 1, ncp) + 1 - noncentral_t_cdf(critical, n - 1, ncp)


def required_pairs(d_z: float, *, power: float = POWER, alpha: float = ALPHA) -> int:
    """The fewest pairs with at least that power (power increases in n)."""
    d_z = checked_positive(abs(d_z), "d_z")
    power = checked_fraction(power, "power")
    enough = 2
    while paired_t_power(d_z, enough, alpha=alpha) < power:
        enough *= 2
        if enough > MOST_PAIRS:
            raise StatisticsError(
                f"d_z = {d_z:g} needs more than {MOST_PAIRS} pairs: reduce the SD or the claim"
            )
    too_few = max(1, enough // 2)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if paired_t_power(d_z, middle, alpha=alpha) < power:
            too_few = middle
        else:
            enough = middle
    return enough


def minimum_detectable_effect(n: int, *, power: float = POWER, alpha: float = ALPHA) -> float:
    """The least d_z that n pairs detect with that power; times the SD, in the endpoint's unit."""
    power, alpha = checked_fraction(power, "power"), checked_fraction(alpha, "alpha")
    if power <= alpha:
        raise StatisticsError(f"power = {power} is not above alpha = {alpha}: ask for more power")
    most = 1.0
    while paired_t_power(most, n, alpha=alpha) < power:
        most *= 2
    found = brentq(lambda d_z: paired_t_power(d_z, n, alpha=alpha) - power, 0.0, most)
    return float(found)  # type: ignore[arg-type]
