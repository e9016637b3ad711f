"""Which replicas have diverged, and when: data, and no reason to stop the others.

Axes: R replicas.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1


class Divergence:
    """A replica has diverged from the first step whose loss or gradient norm is not finite.

    In float16 a gradient that is not finite is skipped as long as the loss scale can be halved
    (`engine.training.loss_scaling`); a loss that is not finite is divergence there too. It comes
    from the forward pass, which the scale has no part in.

    Attributes:
        alive: [R] bool, on the device.
    """

    def __init__(self, n_replicas: int, device: torch.device) -> None:
        self.alive = torch.ones(n_replicas, dtype=torch.bool, device=device)
        self._at = torch.full_like(self.alive, NEVER, dtype=torch.int64)

    def judge(self, goes_on_R: Tensor, t: Tensor) -> Tensor:
        """Note who does not go on from step t; gives [R] who was alive before."""
        before_R = self.alive.clone()
        self.alive &= goes_on_R
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
