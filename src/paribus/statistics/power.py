"""Planning: power, pairs needed and detectable effect of the test that decides.

Effects are d_z, in SDs of normal paired differences. Of the paired t all this is exact; of the gate
it is simulated (see `gate_power`), with a Monte Carlo error of its own.
"""

from __future__ import annotations

import math
from typing import Literal

from .conventions import (
    ALPHA,
    POWER,
    StatisticsError,
    checked_count,
    checked_fraction,
    checked_positive,
)
from .gate_power import STUDIES, gate_detectable, gate_power
from .noncentral import noncentral_t_cdf
from .scipy_later import brentq, stdtrit

TestName = Literal["paired_t", "gate"]

MOST_PAIRS = 10**7  # a plan that needs more is no plan
# Pairs; with more, the paired t's power stands for the gate's. At 100 pairs, where the t has 80%,
# the gate had 79.7% in simulation (alpha .05) and 77.2% (alpha .05 / 18), with an error of 0.9.
SIMULATE_TO = 100


def paired_t_power(d_z: float, n: int, *, alpha: float = ALPHA) -> float:
    """Probability that the two-sided paired t rejects (Cohen 1988, ch. 2), both tails counted."""
    if not math.isfinite(d_z):
        raise StatisticsError(f"d_z = {d_z} is not finite: pass mean / SD of the differences")
    n = checked_count(n, "n", 2, "a paired t needs two pairs")
    critical = float(stdtrit(n - 1, 1 - checked_fraction(alpha, "alpha") / 2))
    ncp = abs(d_z) * math.sqrt(n)
    # P(T > c) as P(-T < -c), with ncp negated, keeps small probabilities exact.
    return noncentral_t_cdf(-critical, n - 1, ncp) + 1 - noncentral_t_cdf(critical, n - 1, ncp)


def power_of(d_z: float, n: int, *, alpha: float = ALPHA, test: TestName = "paired_t") -> float:
    """Probability that `test` rejects; the gate's to `power_error`."""
    if test == "gate" and n <= SIMULATE_TO:
        return gate_power(d_z, n, alpha)
    return paired_t_power(d_z, n, alpha=alpha)


def power_error(test: TestName, power: float = POWER) -> float:
    """Monte Carlo standard error of a power stated for `test`."""
    return math.sqrt(power * (1 - power) / STUDIES) if test == "gate" else 0.0


def required_pairs(
    d_z: float, *, power: float = POWER, alpha: float = ALPHA, test: TestName = "paired_t"
) -> int:
    """The fewest pairs with which `test` has at least that power (power increases in n)."""
    d_z = checked_positive(abs(d_z), "d_z")
    power = checked_fraction(power, "power")
    too_few, enough, step = 1, 2, 2
    if test == "gate":  # it never rejects where the t does not, and needs a few pairs more
        enough = required_pairs(d_z, power=power, alpha=alpha)
        too_few, step = enough - 1, 1
    while power_of(d_z, enough, alpha=alpha, test=test) < power:
        too_few, enough, step = enough, enough + step, 2 * step
        if enough > MOST_PAIRS:
            raise StatisticsError(
                f"d_z = {d_z:g} needs more than {MOST_PAIRS} pairs: reduce the SD or the claim"
            )
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if power_of(d_z, middle, alpha=alpha, test=test) < power:
            too_few = middle
        else:
            enough = middle
    return enough


def minimum_detectable_effect(
    n: int, *, power: float = POWER, alpha: float = ALPHA, test: TestName = "paired_t"
) -> float:
    """The least d_z that n pairs detect with that power; times the SD, in the endpoint's unit.

    Infinite where no effect is large enough: the gate cannot reject with three pairs.
    """
    power, alpha = checked_fraction(power, "power"), checked_fraction(alpha, "alpha")
    if power <= alpha:
        raise StatisticsError(f"power = {power} is not above alpha = {alpha}: ask for more power")
    if test == "gate" and n <= SIMULATE_TO:
        return gate_detectable(n, power, alpha)
    most = 1.0
    while paired_t_power(most, n, alpha=alpha) < power:
        most *= 2
    found = brentq(lambda d_z: paired_t_power(d_z, n, alpha=alpha) - power, 0.0, most)
    return float(found)  # type: ignore[arg-type]
