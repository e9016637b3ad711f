"""Holm's step-down Bonferroni for a family of tests, and the exact sign-flip test.

If a treatment does nothing, each seed's difference is as likely to have either sign (Fisher 1935,
section 21). Two-sided p of |mean|, over all 2^n sign patterns up to 20 pairs, over seeded ones
above. No n pairs can give less than 2^(1-n), however large the effect: the floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .conventions import (
    ENUMERATE_FLIPS_TO,
    RESAMPLES,
    TIE,
    Floats,
    Result,
    StatisticsError,
    checked_resamples,
    checked_scores,
    finite_array,
)


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm-adjusted p-values (Holm 1979), in the order given; reject those <= alpha.

    The i-th smallest of m is multiplied by m - i + 1; a running maximum keeps the order, and 1 is
    the cap. Controls the family-wise error under any dependence.

    Args: p-values within [0, 1] of shape (m,), m >= 1, or (N, m): N families, each by itself.
    """
    p = finite_array(p_values, "p_values", max(1, np.ndim(p_values)))
    if p.min() < 0 or p.max() > 1:
        outside = p[(p < 0) | (p > 1)][0]
        raise StatisticsError(
            f"p_values holds {outside}, needs values within [0, 1]: pass p-values"
        )
    ascending = np.argsort(p, axis=-1, kind="stable")
    stepped = np.take_along_axis(p, ascending, axis=-1) * np.arange(p.shape[-1], 0, -1)
    adjusted = np.empty_like(p)
    kept = np.minimum(1.0, np.maximum.accumulate(stepped, axis=-1))
    np.put_along_axis(adjusted, ascending, kept, axis=-1)
    return adjusted


@dataclass(frozen=True)
class SignFlip(Result):
    """p of a sign-flip test, and the least p that so many pairs could have given."""

    p_value: float
    floor: float
    enumerated: bool


def sign_flip(deltas: ArrayLike, *, seed: int, resamples: int = RESAMPLES) -> SignFlip:
    """Sign-flip test of differences of shape (S,), S >= 2; identical arms get 1."""
    values, resamples = checked_scores(deltas, "deltas"), checked_resamples(resamples)
    # In units of the largest |sum| there is, so that no small endpoint underflows.
    values = values / (np.abs(values).sum() or 1.0)
    n, observed = values.size, abs(float(values.sum()))
    enumerated = n <= ENUMERATE_FLIPS_TO
    if enumerated:  # with the first sign fixed, as |sum| is even
        sums, counted = values[:1], 0
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, n))
        sums, counted = signs @ values, 1
    exceeding = int((np.abs(sums) >= observed - TIE).sum()) + counted
    floor = max(2.0 ** (1 - n), counted / (len(sums) + counted))
    return SignFlip(exceeding / (len(sums) + counted), floor, enumerated)
