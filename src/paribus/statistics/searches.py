"""Searches over settings: sensitivity to the learning rate, and the expected best of n trials."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .conventions import Floats, StatisticsError, finite_array, sums


def learning_rate_sensitivity(final_losses: ArrayLike, initial_losses: ArrayLike) -> Floats:
    """Learning-rate sensitivity per seed (Wortsman et al. 2023, arXiv 2309.14322, section 2.2).

    The mean over the rates of min(final loss, loss at initialization), minus the best loss
    among them. A run that diverged (NaN or infinite loss) counts as one that learned nothing.

    Args:
        final_losses: shape (S, L), seeds by learning rates (spaced evenly in the logarithm).
        initial_losses: shape (S,), finite.
    Returns: shape (S,), in the unit of the losses, at least 0; compare arms by `paired_contrast`.
    Raises StatisticsError where no learning rate of a seed ended below its initial loss.
    """
    initial = finite_array(initial_losses, "initial_losses")[:, None]
    final = np.asarray(final_losses, dtype=np.float64)
    if final.ndim != 2 or final.shape[0] != initial.shape[0] or final.shape[1] == 0:
        raise StatisticsError(
            f"final_losses has shape {final.shape}, needs ({initial.shape[0]}, learning rates)"
        )
    capped = np.minimum(np.where(np.isfinite(final), final, initial), initial)
    best = capped.min(axis=1)
    failed = np.flatnonzero(best >= initial[:, 0])
    if failed.size:
        raise StatisticsError(
            f"seed row {failed[0]}: no learning rate ended below the initial loss "
            f"{initial[failed[0], 0]:g}, so there is no best loss: try other rates"
        )
    return capped.mean(axis=1) - best


def expected_best_of(
    values: ArrayLike, n: ArrayLike, better: Literal["lower", "higher"] = "lower"
) -> Floats:
    """Return expected best of n draws, with replacement, from the empirical distribution of
    `values`.

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
