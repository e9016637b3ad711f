"""Multiple testing: Holm's method for families, and LORD++ for sequential tests.

LORD++ controls the false discovery rate online (Ramdas, Yang, Wainwright and Jordan 2017, "Online
control of the false discovery rate with decaying memory", section 3.1). If tests tau_1 < tau_2 <
... were discoveries, test t has level

    gamma_t w0 + (alpha - w0) gamma_{t - tau_1} + alpha * (sum over j >= 2) gamma_{t - tau_j}

without the terms for tau_j >= t. The weights are gamma_j = j^-1.6 / zeta(1.6), as in Ramdas,
Zrnic, Wainwright and Jordan (2018), "SAFFRON".

The false discovery rate is controlled if the p-values of true null hypotheses are independent of
each other and of all others. Arms with a common baseline violate this; `benchmarks/campaign.py`
measures the consequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .conventions import ALPHA, Floats


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm-adjusted p-values (Holm 1979), in the order of `p_values`.

    The i-th smallest of m p-values is multiplied by m - i + 1, followed by a running maximum and
    capping at 1. Controls the family-wise error rate under arbitrary dependence.

    Args:
        p_values: p-values of shape (m,), m >= 1, or (N, m) for N separate families.
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
    """Return the LORD++ weights gamma_1 to gamma_n, of shape (n,)."""
    return np.arange(1, n + 1, dtype=np.float64) ** -1.6 / ZETA


@dataclass(frozen=True)
class Lord:
    """LORD++ procedure for online control of the false discovery rate.

    Attributes:
        alpha: false discovery rate.
        wealth: initial wealth w0. A larger value makes early tests less strict, but reduces the
            gain from the first discovery.
    """

    alpha: float = ALPHA
    wealth: float = ALPHA / 2

    def next_level(self, discoveries: Sequence[bool]) -> float:
        """Return the significance level of the next test.

        Args:
            discoveries: whether each earlier test was a discovery, in chronological order.
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
