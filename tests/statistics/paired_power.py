"""Power of the paired t, for tests."""

from __future__ import annotations

import math

from paribus.statistics.power import t_power


def paired_power(d_z: float, n: int, alpha: float = 0.05) -> float:
    """Return the chance that n pairs detect an effect of `d_z` SDs of their differences."""
    return t_power(n - 1, abs(d_z) * math.sqrt(n), alpha)
