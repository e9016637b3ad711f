"""Gradient clipping, loss scaling and divergence.

Axes: R replicas.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from paribus.engine.setting import SMALLEST_SCALE, LossScale

CLIP_EPS = 1e-6  # added to the norm, as in torch.nn.utils.clip_grad_norm_
GROWTH, BACKOFF = 2.0, 0.5
SCALE = "loss_scale"  # prefix in the names of `ReplicaState.arrays`
NEVER = -1


def clip_factors(norms_R: Tensor, limit: float | None) -> Tensor:
    """Return the factors [R] that reduce gradient norms to `limit` (Pascanu et al. 2013)."""
    if limit is None:
        return torch.ones_like(norms_R)
    return (limit / (norms_R + CLIP_EPS)).clamp(max=1.0)


class Divergence:
    """The first step of each replica whose loss or gradient norm was not finite.

    In float16, a step with a non-finite gradient is skipped while the loss scale can be halved. A
    non-finite loss is divergence in float16 too, because the scale does not affect it.

    Attributes:
        alive: [R] bool, on the device.
    """

    def __init__(self, n_replicas: int, device: torch.device) -> None:
        self.alive = torch.ones(n_replicas, dtype=torch.bool, device=device)
        self._at = torch.full_like(self.alive, NEVER, dtype=torch.int64)

    def judge(self, continues_R: Tensor, t: Tensor) -> Tensor:
        """Record the replicas that stop at step t; return [R], alive before."""
        before_R = self.alive.clone()
        self.alive &= continues_R
        self._at.copy_(torch.where(before_R & ~self.alive, t, self._at))
        return before_R

    def at(self, replica: int) -> int | None:
        """Return the step at which a replica diverged, or None; waits for the device."""
        at = int(self._at[replica])
        return None if at == NEVER else at

    def restore(self, replica: int, at: int | None) -> None:
        """Resume from a result of `at`."""
        self.alive[replica] = at is None
        self._at[replica] = NEVER if at is None else at


class LossScaling:
    """Dynamic loss scaling (Micikevicius et al. 2018), as torch.amp.GradScaler does it.

    The objective is multiplied by a scale before the backward pass, so that float16 does not round
    small gradients to zero, and the gradient is divided by it afterwards. If the gradient
    overflows, the step is skipped and the scale is halved; after `growth_interval` steps without an
    overflow it is doubled. All tensors are written in place, because a GPU's steps are recorded.

    Attributes:
        scales: [R] float32.
        skipped: [R] int64, number of skipped steps.
    """

    def __init__(self, spec: LossScale, n_replicas: int, device: torch.device) -> None:
        self._interval = spec.growth_interval
        self.scales = torch.full((n_replicas,), spec.initial, device=device)
        self.skipped = torch.zeros(n_replicas, dtype=torch.int64, device=device)
        self._finite = torch.zeros_like(self.skipped)  # consecutive steps without an overflow

    @property
    def can_halve(self) -> Tensor:
        """[R], True while half the scale is at least SMALLEST_SCALE.

        Below DeepSpeed's `min_loss_scale` a replica counts as diverged; GradScaler would skip its
        steps forever.
        """
        return self.scales * BACKOFF >= SMALLEST_SCALE

    def settle(self, moved_R: Tensor, skipped_R: Tensor) -> None:
        """Set the scales of the next step; a diverged replica, in neither mask, keeps its scale."""
        self.skipped.add_(skipped_R)
        finite_R = torch.where(skipped_R, 0, self._finite + moved_R.long())
        is_due_R = moved_R & (finite_R == self._interval)
        self._finite.copy_(torch.where(is_due_R, 0, finite_R))
        grown_R = self.scales * GROWTH
        grown_R = torch.where(is_due_R & grown_R.isfinite(), grown_R, self.scales)
        self.scales.copy_(torch.where(skipped_R, self.scales * BACKOFF, grown_R))

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Copy the state of a replica to the host, float32 by name; waits for the device."""
        return {
            name: np.array(tensor[replica].cpu().numpy(), np.float32)
            for name, tensor in self._tensors.items()
        }

    def load(self, replica: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Resume from a result of `arrays`."""
        for name, tensor in self._tensors.items():
            tensor[replica] = float(arrays[name])

    @property
    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"{SCALE}/scale": self.scales,
            f"{SCALE}/finite_steps": self._finite,
            f"{SCALE}/skipped_steps": self.skipped,
        }
