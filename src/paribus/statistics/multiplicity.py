"""Several tests, one family: Holm's step-down Bonferroni, and exact sign-flip tests.

If a treatment does nothing, each seed's difference is as likely to have either sign (Fisher 1935,
section 21). Two-sided p of |mean|, over all 2^n sign patterns up to 20 pairs, over seeded ones
above. No n pairs can give less than 2^(1-n), however large the effect: the floor.
"""

from __future__ import annotations

from collections.abc import Iterator
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

CELLS = 2**17  # sign patterns x endpoints held in memory at once


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


@dataclass(frozen=True)
class FamilySignFlip(Result):
    """Sign-flip p per endpoint, adjusted for looking at all of them."""

    p_values: tuple[float, ...]
    floor: float
    enumerated: bool


def sign_flip(deltas: ArrayLike, *, seed: int, resamples: int = RESAMPLES) -> SignFlip:
    """Sign-flip test of differences of shape (S,), S >= 2."""
    family = max_statistic_sign_flip(
        checked_scores(deltas, "deltas")[:, None], seed=seed, resamples=resamples
    )
    return SignFlip(family.p_values[0], family.floor, family.enumerated)


def max_statistic_sign_flip(
    deltas: ArrayLike, *, seed: int, resamples: int = RESAMPLES
) -> FamilySignFlip:
    """Single-step max-|t| test of a family (Westfall and Young 1993, 2.6), a sensitivity analysis.

    A flip is shared by all endpoints of a seed, so their dependence is kept and costs nothing.
    Flipping changes no sum of squares, so |t| is an increasing function, the same for every
    endpoint, of |sum| / sqrt(n * sum of squares), which exists for constant differences too.

    Args: deltas of shape (S, E), one column per endpoint x contrast, S >= 2.
    Returns: family-wise adjusted p per column; all-zero columns get 1.
    """
    deltas = checked_scores(deltas, "deltas", ndim=2)
    resamples = checked_resamples(resamples)
    n = deltas.shape[0]
    # In units of each column's largest, so that no square of a small endpoint underflows.
    deltas = deltas / np.where(np.any(deltas, axis=0), np.abs(deltas).max(axis=0), 1.0)
    scale = np.sqrt(n * (deltas**2).sum(axis=0))
    standardized = deltas / np.where(scale > 0, scale, 1.0)
    observed = np.abs(standardized.sum(axis=0))
    enumerated = n <= ENUMERATE_FLIPS_TO
    if enumerated:
        sums, total, counted = _all_flips(standardized), 2 ** (n - 1), 0
    else:
        sums, total, counted = _some_flips(standardized, seed, resamples), resamples, 1
    exceeding = np.full(observed.shape, counted, dtype=np.int64)
    for block in sums:
        largest = np.abs(block).max(axis=1, keepdims=True)
        exceeding += (largest >= observed - TIE).sum(axis=0)
    p_values = exceeding / (total + counted)
    floor = max(2.0 ** (1 - n), counted / (total + counted))
    return FamilySignFlip(tuple(p_values.tolist()), floor, enumerated)


def _block_rows(deltas: Floats) -> int:
    return max(2, CELLS // deltas.shape[1])


def _all_flips(deltas: Floats) -> Iterator[Floats]:
    """Column sums under every sign pattern with the first seed's sign fixed (|sum| is even)."""
    outer_seeds = max(1, deltas.shape[0] - (_block_rows(deltas).bit_length() - 1))
    inner = _signed_sums(deltas[outer_seeds:], np.zeros_like(deltas[:1]))
    for partial in _signed_sums(deltas[1:outer_seeds], deltas[:1]):
        yield partial + inner


def _signed_sums(deltas: Floats, sums: Floats) -> Floats:
    for row in deltas:
        sums = np.concatenate([sums + row, sums - row])
    return sums


def _some_flips(deltas: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    rng, rows = np.random.default_rng(seed), _block_rows(deltas)
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), deltas.shape[0])
        yield rng.choice([-1.0, 1.0], size=shape) @ deltas
