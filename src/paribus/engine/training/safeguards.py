"""Clipping, loss scaling and divergence: what bounds a step, and which replicas go on.

Axes: R replicas.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from paribus.engine.setting import SMALLEST_SCALE, LossScale

# Added to the norm before dividing by it, as in torch.nn.utils.clip_grad_norm_.
CLIP_EPS = 1e-6
GROWTH, BACKOFF = 2.0, 0.5
SCALE = "loss_scale"  # in the names of `ReplicaState.arrays`, before those of `_kept`
NEVER = -1


def clip_factors(norms_R: Tensor, limit: float | None) -> Tensor:
    """Return [R], what gradients are multiplied with so that their norm is at most `limit`.

    Clipping is by the total norm (Pascanu et al. 2013).
    """
    if limit is None:
        return torch.ones_like(norms_R)
    return (limit / (norms_R + CLIP_EPS)).clamp(max=1.0)


class Divergence:
    """A replica has diverged from the first step whose loss or gradient norm is not finite.

    In float16 a gradient that is not finite is skipped as long as the loss scale can be halved; a
    loss that is not finite is divergence there too: the scale has no part in the forward pass.

    Attributes:
        alive: [R] bool, on the device.
    """

    def __init__(self, n_replicas: int, device: torch.device) -> None:
        self.alive = torch.ones(n_replicas, dtype=torch.bool, device=device)
        self._at = torch.full_like(self.alive, NEVER, dtype=torch.int64)

    def judge(self, goes_on_R: Tensor, t: Tensor) -> Tensor:
        """Note who does not go on from step t; return [R] who was alive before."""
        before_R = self.alive.clone()
        self.alive &= goes_on_R
        self._at.copy_(torch.where(before_R & ~self.alive, t, self._at))
        return before_R

    def at(self, replica: int) -> int | None:
        """Return the step at which a replica diverged, or None; waits for the device."""
        at = int(self._at[replica])
        return None if at == NEVER else at

    def restore(self, replica: int, at: int | None) -> None:
        """Go on from what `at` gave."""
        self.alive[replica] = at is None
        self._at[replica] = NEVER if at is None else at


class LossScaling:
    """Dynamic loss scaling (Micikevicius et al. 2018), as torch.amp.GradScaler does it.

    Gradients that float16 would round to zero are lifted into its range: the objective is
    multiplied by a scale before the backward pass, and the gradient divided by it afterwards. Where
    that overflows, the step is skipped, so that weights and optimizer stay as they are, and the
    scale is halved. After `growth_interval` steps in a row without an overflow it is doubled. All
    is written in place, as a GPU's steps are recorded.

    Attributes:
        scales: [R] float32, what objectives are multiplied by.
        skipped: [R] int64, how many steps were skipped.
        shapes: of `arrays`, by name.
    """

    shapes: Mapping[str, tuple[int, ...]] = {
        f"{SCALE}/{name}": () for name in ("scale", "finite_steps", "skipped_steps")
    }

    def __init__(self, spec: LossScale, n_replicas: int, device: torch.device) -> None:
        self._interval = spec.growth_interval
        self.scales = torch.full((n_replicas,), spec.initial, device=device)
        self.skipped = torch.zeros(n_replicas, dtype=torch.int64, device=device)
        self._finite = torch.zeros_like(self.skipped)  # steps in a row without an overflow

    @property
    def can_halve(self) -> Tensor:
        """[R] whose scale stays at SMALLEST_SCALE or above when it is halved.

        One that does not has diverged: it is the smallest of DeepSpeed (`min_loss_scale`), which
        ends a run there. GradScaler would skip its steps for ever.
        """
        return self.scales * BACKOFF >= SMALLEST_SCALE

    def settle(self, moved_R: Tensor, skipped_R: Tensor) -> None:
        """Settle the next step's scales from who made this one, and whose was skipped; a replica
        of neither has diverged, and its scale stays."""
        self.skipped.add_(skipped_R)
        in_a_row_R = torch.where(skipped_R, 0, self._finite + moved_R.long())
        is_due_R = moved_R & (in_a_row_R == self._interval)
        self._finite.copy_(torch.where(is_due_R, 0, in_a_row_R))
        grown_R = self.scales * GROWTH
        grown_R = torch.where(is_due_R & grown_R.isfinite(), grown_R, self.scales)
        self.scales.copy_(torch.where(skipped_R, self.scales * BACKOFF, grown_R))

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Return copies on the host, float32, by name; waits for the device."""
        kept = {name: one[replica].cpu().numpy() for name, one in self._kept.items()}
        return {name: np.array(value, np.float32) for name, value in kept.items()}

    def load(self, replica: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `arrays` gave."""
        for name, one in self._kept.items():
            one[replica] = float(arrays[name])

    @property
    def _kept(self) -> dict[str, Tensor]:
        return dict(zip(self.shapes, (self.scales, self._finite, self.skipped), strict=True))
