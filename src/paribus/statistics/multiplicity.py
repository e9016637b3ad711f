"""Holm's step-down Bonferroni for a family of tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .conventions import Floats, checked_p_values


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm-adjusted p-values (Holm 1979), in the order given; reject those <= alpha.

    The i-th smallest of m is multiplied by m - i + 1; a running maximum keeps the order, and 1 is
    the cap. Controls the family-wise error under any dependence.

    Args: p-values within [0, 1] of shape (m,), m >= 1, or (N, m): N families, each by itself.
    """
    p = checked_p_values(p_values)
    ascending = np.argsort(p, axis=-1, kind="stable")
    stepped = np.take_along_axis(p, ascending, axis=-1) * np.arange(p.shape[-1], 0, -1)
    adjusted = np.empty_like(p)
    kept = np.minimum(1.0, np.maximum.accumulate(stepped, axis=-1))
    np.put_along_axis(adjusted, ascending, kept, axis=-1)
    return adjusted
