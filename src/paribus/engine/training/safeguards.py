"""Gradient clipping and divergence.

Axes: R replicas.
"""

from __future__ import annotations

import torch
from torch import Tensor

CLIP_EPS = 1e-6  # added to the norm, as in torch.nn.utils.clip_grad_norm_
NEVER = -1


def clip_factors(norms_R: Tensor, limit: float | None) -> Tensor:
    """Return the factors [R] that reduce gradient norms to `limit` (Pascanu et al. 2013)."""
    if limit is None:
        return torch.ones_like(norms_R)
    return (limit / (norms_R + CLIP_EPS)).clamp(max=1.0)


class Divergence:
    """The first step of each replica whose loss or gradient norm was not finite."""

    def __init__(self, n_replicas: int, device: torch.device) -> None:
        self._at = torch.full((n_replicas,), NEVER, device=device)

    def judge(self, losses_R: Tensor, norms_R: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Record the replicas that diverge at step t; return [R] alive before and after it."""
        before_R = self._at == NEVER
        after_R = before_R & losses_R.isfinite() & norms_R.isfinite()
        self._at.copy_(torch.where(before_R & ~after_R, t, self._at))
        return before_R, after_R

    def at(self, replica: int) -> int | None:
        """Return the step at which a replica diverged, or None; waits for the device."""
        at = int(self._at[replica])
        return None if at == NEVER else at

    def restore(self, replica: int, at: int | None) -> None:
        """Resume from the result of `at`."""
        self._at[replica] = NEVER if at is None else at
