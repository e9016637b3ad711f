"""Causal attention on a CPU, computed by a compiled kernel.

Axes: B sequences, H heads, T positions, P = 3 H heads of the qkv projection, K channels per head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paribus.engine.ops.kernels.calling import can_read, int64s, kernels

MOST_CHANNELS = 128


def supports(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Return whether the kernel supports these tensors (on a CPU, with equal shape and dtype)."""
    return (
        can_read(q_BHTK, k_BHSK, v_BHSK)
        and q_BHTK.ndim == 4
        and q_BHTK.shape == k_BHSK.shape == v_BHSK.shape
        and q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype
        and q_BHTK.shape[-1] <= MOST_CHANNELS
    )


def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax(q k^T / sqrt(K)) v with a causal mask, and the logsumexp [B, H, T] of scores.

    The inputs are [B, H, T, K] with contiguous channels. The result has the same shape and dtype,
    and the memory layout of [B, T, H, K]; it is computed in float32.
    """
    B, H, T, K = q.shape
    y, logsumexp_BHT = q.new_empty(B, T, H, K).transpose(1, 2), torch.empty(B, H, T)
    _call("forward", logsumexp_BHT, q, k, v, y)
    return y, logsumexp_BHT


def split(qkv_BTPK: Tensor) -> tuple[Tensor, ...]:
    """Split the qkv projection into views of queries, keys and values, [B, H, T, K] each."""
    return qkv_BTPK.transpose(1, 2).chunk(3, dim=1)


def projection_gradient(dy: Tensor, qkv: Tensor, y: Tensor, logsumexp_BHT: Tensor) -> Tensor:
    """Return the gradient with respect to the qkv projection, [B, T, P, K].

    Args:
        dy: gradient with respect to the attention's output, [B, T, H K].
        qkv: output of the projection, [B, T, P, K].
        y: output of the attention, from `forward`.
        logsumexp_BHT: logsumexp of the scores, from `forward`.
    """
    B, H, T, K = y.shape
    dy = dy.to(qkv.dtype).contiguous().view(B, T, H, K).transpose(1, 2)
    dqkv = torch.empty_like(qkv)
    _call("backward", logsumexp_BHT, dy, *split(qkv), y, *split(dqkv))
    return dqkv


class _CausalAttention(torch.autograd.Function):
    """Autograd function of causal attention; see `forward`."""

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
    """Call the kernel "forward" with q, k, v, y, or "backward" with dy, q, k, v, y, dq, dk, dv."""
    arrays = int64s(*(n for x in tensors for n in (x.data_ptr(), *x.stride()[:3])))
    sizes, is_lower = int64s(*tensors[0].shape), tensors[0].dtype == torch.bfloat16
    getattr(kernels(), f"attention_{name}")(arrays, logsumexp_BHT.data_ptr(), sizes, is_lower)
