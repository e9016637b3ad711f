"""Several tests, one family: the step-down Bonferroni of Holm."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .conventions import Floats, StatisticsError, finite_array


def holm(p_values: ArrayLike) -> Floats:
    """Holm-adjusted p-values (Holm 1979), in the order given; reject those <= alpha.

    The i-th smallest of m is multiplied by m - i + 1; a running maximum keeps the order, and 1 is
    the cap. Controls the family-wise error under any dependence.

    Args: p-values of shape (m,), m >= 1, each within [0, 1].
    """
    p = finite_array(p_values, "p_values")
    if p.min() < 0 or p.max() > 1:
        outside = p[(p < 0) | (p > 1)][0]
        raise StatisticsError(
            f"p_values holds {outside}, needs values within [0, 1]: pass p-values"
        )
    ascending = np.argsort(p, kind="stable")
    stepped = p[ascending] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(stepped))
    return adjusted
