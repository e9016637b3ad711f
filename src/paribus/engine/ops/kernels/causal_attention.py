"""Causal attention on a CPU by a compiled kernel, as PyTorch sees it.

Axes: B sequences, H heads, T positions, K channels of a head.
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
    has_kernels,
    kernels,
    refuse_second_derivative,
    rounds_otherwise,
)
from paribus.engine.ops.kernels.compiling import AttentionArray, AttentionSizes

MOST_CHANNELS = 128


def supports(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Tell whether `causal_attention` computes it: on a CPU, all of one shape and type.

    The kernel reads addresses: what is no such tensor it would read as one.
    """
    return (
        all(x.is_cpu and x.ndim == 4 for x in (q_BHTK, k_BHSK, v_BHSK))
        and q_BHTK.shape == k_BHSK.shape == v_BHSK.shape
        and q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype
        and q_BHTK.shape[-1] <= MOST_CHANNELS
        and q_BHTK.dtype in DTYPES
        and not rounds_otherwise()
        and has_kernels()
    )


def causal_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(K)) v over the positions up to each, [B, H, T, K].

    What `F.scaled_dot_product_attention(..., is_causal=True)` computes, in float32 whatever comes
    in (float32 or bfloat16, which goes out again). Can be differentiated once, and mapped.
    """
    return _CausalAttention.apply(q_BHTK, k_BHTK, v_BHTK)[0]


def supports_projection(qkv_BTPK: Tensor, n_head: int) -> bool:
    """Tell whether `self_attention` computes it: of one projection, mapped over nothing."""
    return (
        are_plain(qkv_BTPK)
        and qkv_BTPK.shape[2] == 3 * n_head
        and qkv_BTPK.shape[-1] <= MOST_CHANNELS
        and qkv_BTPK.is_contiguous()
        and has_kernels()
    )


def self_attention(qkv_BTPK: Tensor) -> Tensor:
    """Return `causal_attention` of a projection's queries, keys and values, as [B, T, H K].

    Its gradient is one tensor too, and nothing is copied.
    """
    return _SelfAttention.apply(qkv_BTPK)  # type: ignore[no-any-return]


class _SelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        B, T, P, K = qkv.shape
        H = P // 3
        y, logsumexp_BHT = qkv.new_empty(B, T, H, K), torch.empty(B, H, T)
        arrays = [*_three(qkv), _of(y)]
        _ask("forward", arrays, logsumexp_BHT, (B, H, T, K), qkv.dtype)
        ctx.save_for_backward(qkv, y, logsumexp_BHT)
        return y.view(B, T, H * K)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            refuse_second_derivative("attention")
        qkv, y, logsumexp_BHT = ctx.saved_tensors
        B, T, H, K = y.shape
        dy = grad_outputs[0].to(qkv.dtype).contiguous().view(y.shape)
        dqkv = torch.empty_like(qkv)
        arrays = [_of(dy), *_three(qkv), _of(y), *_three(dqkv)]
        _ask("backward", arrays, logsumexp_BHT, (B, H, T, K), qkv.dtype)
        return dqkv


def _of(x_BTHK: Tensor) -> AttentionArray:
    sequence, position, head, _ = x_BTHK.stride()
    return AttentionArray(x_BTHK.data_ptr(), sequence, head, position)


def _three(qkv_BTPK: Tensor) -> list[AttentionArray]:
    """Return queries, keys and values of one tensor."""
    sequence, position, head, _ = qkv_BTPK.stride()
    third = qkv_BTPK.shape[2] // 3 * head * qkv_BTPK.element_size()
    start = qkv_BTPK.data_ptr()
    return [AttentionArray(start + i * third, sequence, head, position) for i in range(3)]


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        B, H, T, _ = q.shape
        q, k, v = map(_side_by_side, (q, k, v))
        # As the projection after it reads it: channels of all heads of a position together.
        y = _like(q)
        logsumexp_BHT = torch.empty(B, H, T)
        _call("forward", (q, k, v, y), logsumexp_BHT)
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
        return _folded(_CausalAttention, info.batch_size, in_dims, tensors), (0, 0)


class _Gradients(torch.autograd.Function):
    """Gradients of queries, keys and values: a function, so that transforms apply to it too."""

    @staticmethod
    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        *tensors, logsumexp_BHT = given
        tensors = tuple(map(_side_by_side, tensors))
        gradients = tuple(_like(tensors[1]) for _ in range(3))
        _call("backward", (*tensors, *gradients), logsumexp_BHT)
        return gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        refuse_second_derivative("attention")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        return _folded(_Gradients, info.batch_size, in_dims, tensors), (0, 0, 0)


def _folded(
    function: type[torch.autograd.Function], R: int, in_dims: Any, tensors: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Compute what is mapped over, R of it, as more sequences: each is computed alone."""
    folded = [
        (x.expand(R, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]
    return tuple(x.unflatten(0, (R, -1)) for x in function.apply(*folded))


def _side_by_side(x: Tensor) -> Tensor:
    """Return `x` with the channels of a head next to each other, as the kernel reads them."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(q_BHTK: Tensor) -> Tensor:
    B, H, T, K = q_BHTK.shape
    return q_BHTK.new_empty(B, T, H, K).transpose(1, 2)


def _call(name: str, tensors: tuple[Tensor, ...], logsumexp_BHT: Tensor) -> None:
    arrays = [AttentionArray(x.data_ptr(), *x.stride()[:3]) for x in tensors]
    _ask(name, arrays, logsumexp_BHT, tensors[0].shape, tensors[0].dtype)


def _ask(
    name: str,
    arrays: Sequence[AttentionArray],
    logsumexp_BHT: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> None:
    function = getattr(kernels(), f"attention_{name}")
    places, sizes = (AttentionArray * len(arrays))(*arrays), AttentionSizes(*shape)
    function(places, logsumexp_BHT.data_ptr(), ctypes.byref(sizes), dtype == torch.bfloat16)
