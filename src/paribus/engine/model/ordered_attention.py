"""Fused attention whose gradients have the same bits every time, also on a GPU.

Flash attention adds up the gradient of the queries from blocks of keys as they finish. It has an
order for them, which PyTorch takes only where deterministic algorithms are required outright. That
is more than a whole training step can ask for: an own module may sum along an axis, for which CUDA
has no deterministic kernel at all. So it is required for the backward pass of attention alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def ordered_attention(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """`F.scaled_dot_product_attention` of [..., T, K], with gradients in a fixed order on CUDA."""
    # A tensor that `torch.func.vmap` maps says that it needs none; a stack comes here unmapped.
    if q.is_cuda and (q.requires_grad or k.requires_grad or v.requires_grad):
        return in_order(q, k, v, is_causal=is_causal)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def in_order(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """The same on any device: nothing but attention's backward pass lies between the two."""
    q, k, v = (_Wished.apply(x) for x in (q, k, v))
    return _Required.apply(F.scaled_dot_product_attention(q, k, v, is_causal=is_causal))


class _Required(torch.autograd.Function):
    """The identity; its backward pass requires deterministic algorithms."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        torch.use_deterministic_algorithms(True)
        return grad


class _Wished(torch.autograd.Function):
    """The identity; after its backward pass they are taken where there are any."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        torch.use_deterministic_algorithms(True, warn_only=True)
        return grad
