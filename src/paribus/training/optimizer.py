"""AdamW over a stack: every replica's parameters lie in one row, and are updated by a few kernels.

Axes: R replicas, N parameters of one replica.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paribus.model import ParameterUse
from paribus.study.spec import Optimizer

# Added to the norm before dividing by it, as in torch.nn.utils.clip_grad_norm_.
CLIP_EPS = 1e-6


def is_decayed(use: ParameterUse, decay: str) -> bool:
    """Whether weight decay touches a parameter of that use, under `training.optimizer.decay`."""
    return use.decays and (decay == "matrices" or not use.table)


@dataclass
class AdamW:
    """Decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW computes it.

    Attributes:
        spec: betas and eps.
        n_decayed: the first so many of the N parameters are decayed.
        decay: [R, 1] weight decay.
        mean, square: [R, N] the running moments of the gradient.
    """

    spec: Optimizer
    n_decayed: int
    decay: Tensor
    mean: Tensor
    square: Tensor

    @torch.no_grad()
    def update(
        self, weights_RN: Tensor, grads_RN: Tensor, lr_R1: Tensor, corrections: Tensor
    ) -> None:
        """One step in place. A replica whose learning rate is 0 keeps its weights.

        corrections: [2], 1 - beta^t of both betas at step t = 1, 2, ...
        """
        beta1, beta2 = self.spec.betas
        self.mean.lerp_(grads_RN, 1 - beta1)
        self.square.mul_(beta2).addcmul_(grads_RN, grads_RN, value=1 - beta2)
        weights_RN[:, : self.n_decayed].mul_(1 - lr_R1 * self.decay)
        denominator_RN = (self.square / corrections[1]).sqrt_().add_(self.spec.eps)
        step_R1 = lr_R1 / corrections[0]
        weights_RN.sub_(denominator_RN.reciprocal_().mul_(self.mean).mul_(step_R1))


def clip_factors(norms_R: Tensor, limit: float | None) -> Tensor:
    """[R] what each replica's gradient is multiplied with so that its norm is at most `limit`."""
    if limit is None:
        return torch.ones_like(norms_R)
    return (limit / (norms_R + CLIP_EPS)).clamp(max=1.0)
