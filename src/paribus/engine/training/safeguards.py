"""Gradient clipping, divergence and loss scaling.

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
        """Return ([R] alive before step t, [R] whose weights move in it)."""
        return self._stop(losses_R.isfinite() & norms_R.isfinite(), t)

    def _stop(self, continues_R: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Record the replicas that stop at step t; return [R] alive before and after it."""
        before_R = self._at == NEVER
        after_R = before_R & continues_R
        self._at.copy_(torch.where(before_R & ~after_R, t, self._at))
        return before_R, after_R

    def at(self, replica: int) -> int | None:
        """Return the step at which a replica diverged, or None; waits for the device."""
        at = int(self._at[replica])
        return None if at == NEVER else at

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Copy the state of a replica beside `at`, float32 by name; waits for the device."""
        return {}

    def restore(self, replica: int, at: int | None, arrays: Mapping[str, np.ndarray]) -> None:
        """Resume from results of `at` and `arrays`."""
        self._at[replica] = NEVER if at is None else at


class LossScaling(Divergence):
    """Divergence in float16, with the dynamic loss scaling of torch.amp.GradScaler (Micikevicius et
    al. 2018).

    The objective is multiplied by a scale before the backward pass, so that float16 does not round
    small gradients to zero, and the gradient is divided by it afterwards. If the gradient
    overflows, the step is skipped and the scale is halved, unless it would be below SMALLEST_SCALE
    (DeepSpeed's `min_loss_scale`; GradScaler would skip steps forever): then the replica has
    diverged. A non-finite loss is divergence too, because the scale does not affect it. After
    `growth_interval` steps without an overflow the scale is doubled. All tensors are written in
    place, because a GPU's steps are recorded.

    Attributes:
        scales: [R] float32.
        skipped: [R] int64, number of skipped steps.
    """

    def __init__(self, spec: LossScale, n_replicas: int, device: torch.device) -> None:
        super().__init__(n_replicas, device)
        self._interval = spec.growth_interval
        self.scales = torch.full((n_replicas,), spec.initial, device=device)
        self.skipped = torch.zeros_like(self._at)
        self._finite = torch.zeros_like(self._at)  # consecutive steps without an overflow
        self._tensors = {
            "loss_scale/scale": self.scales,
            "loss_scale/finite_steps": self._finite,
            "loss_scale/skipped_steps": self.skipped,
        }

    def judge(self, losses_R: Tensor, norms_R: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Do as in another precision, and set the scales of the next step.

        A diverged replica keeps its scale.
        """
        finite_R, halves_R = norms_R.isfinite(), self.scales * BACKOFF
        may_skip_R = halves_R >= SMALLEST_SCALE
        before_R, alive_R = self._stop(losses_R.isfinite() & (finite_R | may_skip_R), t)
        moves_R, skips_R = alive_R & finite_R, alive_R & ~finite_R
        self.skipped.add_(skips_R)
        run_R = torch.where(skips_R, 0, self._finite + moves_R.long())
        is_due_R = moves_R & (run_R == self._interval)
        self._finite.copy_(torch.where(is_due_R, 0, run_R))
        grown_R = self.scales * GROWTH
        grown_R = torch.where(is_due_R & grown_R.isfinite(), grown_R, self.scales)
        self.scales.copy_(torch.where(skips_R, halves_R, grown_R))
        return before_R, moves_R

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Copy the scale of a replica and its counts of steps; waits for the device."""
        return {
            name: np.array(tensor[replica].cpu().numpy(), np.float32)
            for name, tensor in self._tensors.items()
        }

    def restore(self, replica: int, at: int | None, arrays: Mapping[str, np.ndarray]) -> None:
        """Resume from results of `at` and `arrays`."""
        super().restore(replica, at, arrays)
        for name, tensor in self._tensors.items():
            tensor[replica] = float(arrays[name])
