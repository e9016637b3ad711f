"""Causal attention on a CPU by a compiled kernel.

Axes: B sequences, H heads, T positions, P = 3 H heads of a projection, K channels of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paribus.engine.ops.kernels.calling import can_read, int64s, kernels

MOST_CHANNELS = 128


def supports(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Return True for queries, keys and values of one shape and dtype on a CPU."""
    return (
        can_read(q_BHTK, k_BHSK, v_BHSK)
        and q_BHTK.ndim == 4
        and q_BHTK.shape == k_BHSK.shape == v_BHSK.shape
        and q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype
        and q_BHTK.shape[-1] <= MOST_CHANNELS
    )


def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return (softmax(q k^T / sqrt(K)) v with a causal mask, logsumexp [B, H, T]).

    Inputs are [B, H, T, K] with contiguous channels; the result has the memory layout of
    [B, T, H, K]. Computed in float32, and returned in the dtype of the inputs.
    """
    B, H, T, K = q.shape
    y, logsumexp_BHT = q.new_empty(B, T, H, K).transpose(1, 2), torch.empty(B, H, T)
    _call("forward", logsumexp_BHT, q, k, v, y)
    return y, logsumexp_BHT


def split(qkv_BTPK: Tensor) -> tuple[Tensor, ...]:
    """Return views of queries, keys and values, [B, H, T, K] each."""
    return qkv_BTPK.transpose(1, 2).chunk(3, dim=1)


def projection_gradient(dy: Tensor, qkv: Tensor, y: Tensor, logsumexp_BHT: Tensor) -> Tensor:
    """Return the gradient of a projection [B, T, P, K] from that of attention [B, T, H K]."""
    B, H, T, K = y.shape
    dy = dy.to(qkv.dtype).contiguous().view(B, T, H, K).transpose(1, 2)
    dqkv = torch.empty_like(qkv)
    _call("backward", logsumexp_BHT, dy, *split(qkv), y, *split(dqkv))
    return dqkv


class _CausalAttention(torch.autograd.Function):
    """q, k, v -> the result of `forward`."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        tensors = tuple(map(_with_contiguous_channels, tensors))
        y, logsumexp_BHT = forward(*tensors)
        ctx.save_for_backward(*tensors, y, logsumexp_BHT)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        q, *tensors, logsumexp_BHT = ctx.saved_tensors
        dy = _with_contiguous_channels(grad_outputs[0].to(q.dtype))
        B, H, T, K = q.shape
        gradients = [q.new_empty(B, T, H, K).transpose(1, 2) for _ in range(3)]
        _call("backward", logsumexp_BHT, dy, q, *tensors, *gradients)
        return tuple(gradients)


def _with_contiguous_channels(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _call(name: str, logsumexp_BHT: Tensor, *tensors: Tensor) -> None:
    """Call "forward" with q, k, v and y, or "backward" with dy, q, k, v, y and three gradients."""
    arrays = int64s(*(n for x in tensors for n in (x.data_ptr(), *x.stride()[:3])))
    sizes, is_lower = int64s(*tensors[0].shape), tensors[0].dtype == torch.bfloat16
    getattr(kernels(), f"attention_{name}")(arrays, logsumexp_BHT.data_ptr(), sizes, is_lower)
