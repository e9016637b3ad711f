"""How much the final loss depends on getting the learning rate right."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .conventions import Floats, StatisticsError, finite_array


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
