"""Clipping of gradients by their total norm (Pascanu et al. 2013)."""

from __future__ import annotations

import torch
from torch import Tensor

# Added to the norm before dividing by it, as in torch.nn.utils.clip_grad_norm_.
CLIP_EPS = 1e-6


def clip_factors(norms_R: Tensor, limit: float | None) -> Tensor:
    """[R] what each replica's gradient is multiplied with so that its norm is at most `limit`."""
    if limit is None:
        return torch.ones_like(norms_R)
    return (limit / (norms_R + CLIP_EPS)).clamp(max=1.0)
