"""What the best of n trials is expected to be, from trials that were made."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .conventions import Floats, StatisticsError, finite_array, sums


def expected_best_of(
    values: ArrayLike, n: ArrayLike, better: Literal["lower", "higher"] = "lower"
) -> Floats:
    """Expected best of n draws, with replacement, from the empirical distribution of `values`.

    With v_1 <= ... <= v_N, the largest of n draws is at most v_i with probability (i / N)^n, so
    its mean is sum_i v_i ((i / N)^n - ((i - 1) / N)^n) (Dodge et al. 2019, arXiv 1909.03004,
    equation 5); the smallest is that of the negated values. For few values and n near N it is
    biased towards the worse (Tang et al. 2020): a description of the search, not a test.

    Args:
        values: shape (N,), finite: one for each candidate that was tried.
        n: numbers of draws, each at least 1.
        better: which direction is an improvement.
    Returns: an array of the shape of `n`, in the unit of the values.
    """
    sign = 1.0 if better == "higher" else -1.0
    ascending = np.sort(sign * finite_array(values, "values"))
    draws = np.asarray(n)
    if ascending.ndim != 1 or not ascending.size:
        raise StatisticsError(f"values has shape {ascending.shape}, needs (candidates,)")
    if not np.issubdtype(draws.dtype, np.integer) or (draws < 1).any():
        raise StatisticsError(f"n = {n!r:.60}; the best is of 1 or more draws")
    share = np.arange(ascending.size + 1) / ascending.size
    at_most = share ** draws[..., None]
    return sign * sums(np.diff(at_most, axis=-1), ascending)
