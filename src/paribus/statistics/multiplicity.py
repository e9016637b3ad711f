"""Multiple testing: Holm's adjustment for families, and LORD++ for tests that arrive one by one.

LORD++ keeps the false discovery rate (Ramdas, Yang, Wainwright and Jordan 2017, "Online control of
the false discovery rate with decaying memory", section 3.1). With discoveries at the places
tau_1 < tau_2 < ..., test t has level

    gamma_t w0 + (alpha - w0) gamma_{t - tau_1} + alpha * (sum over j >= 2) gamma_{t - tau_j}

where terms of discoveries at t or later are dropped and gamma_j = j^-1.6 / zeta(1.6), as in
Ramdas, Zrnic, Wainwright and Jordan (2018), "SAFFRON": 93% of the level is spent by the 50th test.

The bound on the false discovery rate is proven for p-values of true nulls that are independent of
one another and of the rest. Arms that share one baseline are not: `benchmarks/campaign.py` measures
what that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .conventions import ALPHA, Floats


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm-adjusted p-values (Holm 1979) in the given order; reject those <= alpha.

    The i-th smallest of m is multiplied by m - i + 1; a running maximum keeps the order, and
    values are capped at 1. Controls the family-wise error under any dependence.

    Args:
        p_values: within [0, 1], of shape (m,), m >= 1, or (N, m) for N separate families.
    """
    p = np.asarray(p_values, dtype=float)
    ascending = np.argsort(p, axis=-1, kind="stable")
    stepped = np.take_along_axis(p, ascending, axis=-1) * np.arange(p.shape[-1], 0, -1)
    adjusted = np.empty_like(p)
    kept = np.minimum(1.0, np.maximum.accumulate(stepped, axis=-1))
    np.put_along_axis(adjusted, ascending, kept, axis=-1)
    return adjusted


ZETA = 2.2857656656801293  # of 1.6


def gamma(n: int) -> Floats:
    """Return the weights gamma_1 to gamma_n, [n], by which LORD++ spends the level."""
    return np.arange(1, n + 1, dtype=np.float64) ** -1.6 / ZETA


@dataclass(frozen=True)
class Lord:
    """LORD++ for a false discovery rate of `alpha`, with initial `wealth`.

    A larger `wealth` (w0) makes early tests less strict, but the first discovery earns less.
    """

    alpha: float = ALPHA
    wealth: float = ALPHA / 2

    def next_level(self, discoveries: Sequence[bool]) -> float:
        """Return the level of the next test.

        Args:
            discoveries: whether each earlier test was a discovery, in order.
        """
        shares = gamma(len(discoveries) + 1)
        since = [
            len(discoveries) - place
            for place, is_discovery in enumerate(discoveries)
            if is_discovery
        ]
        level = self.wealth * shares[-1]
        for number, steps in enumerate(since):
            level += (self.alpha if number else self.alpha - self.wealth) * shares[steps - 1]
        return float(level)
