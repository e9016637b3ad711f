"""Causal attention on a CPU by a compiled kernel.

Axes: B sequences, H heads, T positions, P = 3 H heads of a projection, K channels of a head.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paribus.engine.ops.kernels.calling import (
    DTYPES,
    are_plain,
    has_foreign_autocast,
    has_kernels,
    kernels,
    refuse_second_derivative,
)
from paribus.engine.ops.kernels.compiling import AttentionArray, AttentionSizes

MOST_CHANNELS = 128


def supports(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Return True for tensors that `CausalAttention` computes: of one shape and dtype on a CPU."""
    return (
        all(x.is_cpu and x.ndim == 4 for x in (q_BHTK, k_BHSK, v_BHSK))
        and q_BHTK.shape == k_BHSK.shape == v_BHSK.shape
        and q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype
        and q_BHTK.shape[-1] <= MOST_CHANNELS
        and q_BHTK.dtype in DTYPES
        and not has_foreign_autocast()
        and has_kernels()
    )


def supports_projection(qkv_BTPK: Tensor) -> bool:
    """Return True for a projection that `SelfAttention` computes."""
    return (
        are_plain(qkv_BTPK)
        and qkv_BTPK.shape[-1] <= MOST_CHANNELS
        and qkv_BTPK.is_contiguous()
        and has_kernels()
    )


class _SelfAttention(torch.autograd.Function):
    """qkv [B, T, P, K] of one projection -> [B, T, H K], without copies."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        B, T, P, K = qkv.shape
        H = P // 3
        y, logsumexp_BHT = qkv.new_empty(B, T, H, K), torch.empty(B, H, T)
        arrays = [*_split_array(qkv), _array(y)]
        _call("forward", arrays, logsumexp_BHT, (B, H, T, K), qkv.dtype)
        ctx.save_for_backward(qkv, y, logsumexp_BHT)
        return y.view(B, T, H * K)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            refuse_second_derivative()
        qkv, y, logsumexp_BHT = ctx.saved_tensors
        B, T, H, K = y.shape
        dy = grad_outputs[0].to(qkv.dtype).contiguous().view(y.shape)
        dqkv = torch.empty_like(qkv)
        arrays = [_array(dy), *_split_array(qkv), _array(y), *_split_array(dqkv)]
        _call("backward", arrays, logsumexp_BHT, (B, H, T, K), qkv.dtype)
        return dqkv


class _CausalAttention(torch.autograd.Function):
    """q, k, v [B, H, T, K] -> (softmax(q k^T / sqrt(K)) v with a causal mask, logsumexp [B, H, T]).

    Computed in float32 and returned in the dtype of the inputs. Can be differentiated once, and
    mapped by `torch.func.vmap`.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        B, H, T, _ = q.shape
        q, k, v = map(_with_contiguous_channels, (q, k, v))
        y, logsumexp_BHT = _empty_like(q), torch.empty(B, H, T)
        arrays = [AttentionArray(x.data_ptr(), *x.stride()[:3]) for x in (q, k, v, y)]
        _call("forward", arrays, logsumexp_BHT, q.shape, q.dtype)
        return y, logsumexp_BHT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor, ...]:
        *tensors, logsumexp_BHT = ctx.saved_tensors
        dy = grad_outputs[0].to(tensors[0].dtype)
        return _Gradients.apply(dy, *tensors, logsumexp_BHT)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        return _apply_folded(_CausalAttention, info.batch_size, in_dims, tensors), (0, 0)


class _Gradients(torch.autograd.Function):
    """Gradients of queries, keys and values, as a function so that transforms apply to it."""

    @staticmethod
    def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
        *tensors, logsumexp_BHT = inputs
        tensors = [_with_contiguous_channels(x) for x in tensors]
        gradients = tuple(_empty_like(tensors[1]) for _ in range(3))
        arrays = [AttentionArray(x.data_ptr(), *x.stride()[:3]) for x in (*tensors, *gradients)]
        _call("backward", arrays, logsumexp_BHT, tensors[0].shape, tensors[0].dtype)
        return gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        refuse_second_derivative()

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        return _apply_folded(_Gradients, info.batch_size, in_dims, tensors), (0, 0, 0)


def _apply_folded(
    function: type[torch.autograd.Function], R: int, in_dims: Any, tensors: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Apply a function to R x B sequences instead of mapping it over R."""
    folded = [
        (x.expand(R, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]
    return tuple(x.unflatten(0, (R, -1)) for x in function.apply(*folded))


def _with_contiguous_channels(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _empty_like(q_BHTK: Tensor) -> Tensor:
    """Return an empty [B, H, T, K] in the memory layout of [B, T, H, K]."""
    B, H, T, K = q_BHTK.shape
    return q_BHTK.new_empty(B, T, H, K).transpose(1, 2)


def _array(x_BTHK: Tensor) -> AttentionArray:
    sequence, position, head, _ = x_BTHK.stride()
    return AttentionArray(x_BTHK.data_ptr(), sequence, head, position)


def _split_array(qkv_BTPK: Tensor) -> list[AttentionArray]:
    """Return queries, keys and values of one tensor."""
    sequence, position, head, _ = qkv_BTPK.stride()
    third = qkv_BTPK.shape[2] // 3 * head * qkv_BTPK.element_size()
    start = qkv_BTPK.data_ptr()
    return [AttentionArray(start + i * third, sequence, head, position) for i in range(3)]


def _call(
    name: str,
    arrays: Sequence[AttentionArray],
    logsumexp_BHT: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> None:
    function = getattr(kernels(), f"attention_{name}")
    pointers, sizes = (AttentionArray * len(arrays))(*arrays), AttentionSizes(*shape)
    function(pointers, logsumexp_BHT.data_ptr(), ctypes.byref(sizes), dtype == torch.bfloat16)
