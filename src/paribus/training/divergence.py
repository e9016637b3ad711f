"""Which replicas have diverged, and when: data, and no reason to stop the others.

Axes: R replicas.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1


class Divergence:
    """A replica has diverged from the first step whose loss or gradient norm is not finite.

    Attributes:
        alive: [R] bool, on the device.
    """

    def __init__(self, n_replicas: int, device: torch.device) -> None:
        self.alive = torch.ones(n_replicas, dtype=torch.bool, device=device)
        self._at = torch.full_like(self.alive, NEVER, dtype=torch.int64)

    def judge(self, losses_R: Tensor, norms_R: Tensor, t: Tensor) -> Tensor:
        """Note who has stopped being finite at step t; gives [R] who was alive before."""
        before_R = self.alive.clone()
        self.alive &= losses_R.isfinite() & norms_R.isfinite()
        self._at.copy_(torch.where(before_R & ~self.alive, t, self._at))
        return before_R

    def at(self, replica: int) -> int | None:
        """The step at which a replica diverged; waits for the device."""
        at = int(self._at[replica])
        return None if at == NEVER else at

    def restore(self, replica: int, at: int | None) -> None:
        """Go on from what `at` gave."""
        self.alive[replica] = at is None
        self._at[replica] = NEVER if at is None else at
