"""Causal attention on a CPU by our own kernel, as PyTorch sees it.

Axes: B sequences, H heads, T positions, K channels of a head.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paribus.engine.kernels.calling import (
    TOLERANCE,
    are_plain,
    kernels,
    refuse_second_derivative,
    rounds_otherwise,
)

MOST_CHANNELS = 128


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("sequence", "head", "position")),
    )


class _Sizes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in "BHTK")


def is_for(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> bool:
    """Whether `causal_attention` can be asked: on a CPU, with a kernel, all of one shape and type.

    The kernel reads addresses: what is no such tensor it would read as one.
    """
    return (
        all(x.is_cpu for x in (q_BHTK, k_BHSK, v_BHSK))
        and q_BHTK.shape == k_BHSK.shape == v_BHSK.shape
        and q_BHTK.dtype == k_BHSK.dtype == v_BHSK.dtype
        and q_BHTK.shape[-1] <= MOST_CHANNELS
        and q_BHTK.dtype in (torch.float32, torch.bfloat16)
        and not rounds_otherwise()
        and _kernel() is not None
    )


def causal_attention(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(K)) v over the positions up to each, [B, H, T, K].

    What `F.scaled_dot_product_attention(..., is_causal=True)` computes, in float32 whatever comes
    in (float32 or bfloat16, which goes out again). Can be differentiated once, and mapped.
    """
    return _CausalAttention.apply(q_BHTK, k_BHTK, v_BHTK)[0]


def is_for_all(qkv_BTPK: Tensor, n_head: int) -> bool:
    """Whether `self_attention` can be asked: the same, of one projection, mapped over nothing."""
    return (
        are_plain(qkv_BTPK)
        and qkv_BTPK.shape[2] == 3 * n_head
        and qkv_BTPK.shape[-1] <= MOST_CHANNELS
        and qkv_BTPK.is_contiguous()
        and _kernel() is not None
    )


def self_attention(qkv_BTPK: Tensor) -> Tensor:
    """`causal_attention` of what a projection gives, [B, T, 3 H, K]: queries, keys and values.

    [B, T, H K], as the next one reads it; its gradient is one tensor too, and nothing is copied.
    """
    return _SelfAttention.apply(qkv_BTPK)  # type: ignore[no-any-return]


class _SelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        B, T, P, K = qkv.shape
        H = P // 3
        y, logsumexp_BHT = qkv.new_empty(B, T, H, K), torch.empty(B, H, T)
        arrays = [*_three(qkv), _of(y)]
        _ask_here("forward", arrays, logsumexp_BHT, (B, H, T, K), qkv.dtype)
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
        _ask_here("backward", arrays, logsumexp_BHT, (B, H, T, K), qkv.dtype)
        return dqkv


def _of(x_BTHK: Tensor) -> _Array:
    sequence, position, head, _ = x_BTHK.stride()
    return _Array(x_BTHK.data_ptr(), sequence, head, position)


def _three(qkv_BTPK: Tensor) -> list[_Array]:
    """Queries, keys and values of one tensor."""
    sequence, position, head, _ = qkv_BTPK.stride()
    third = qkv_BTPK.shape[2] // 3 * head * qkv_BTPK.element_size()
    start = qkv_BTPK.data_ptr()
    return [_Array(start + i * third, sequence, head, position) for i in range(3)]


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
    """Those of queries, keys and values: a function of its own, for transforms of gradients."""

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
    """What is mapped over, R of it, as more sequences: each is computed alone."""
    folded = [
        (x.expand(R, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]
    return tuple(x.unflatten(0, (R, -1)) for x in function.apply(*folded))


def _side_by_side(x: Tensor) -> Tensor:
    """`x` with the channels of a head next to each other, as the kernel reads them."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(q_BHTK: Tensor) -> Tensor:
    B, H, T, K = q_BHTK.shape
    return q_BHTK.new_empty(B, T, H, K).transpose(1, 2)


def _call(name: str, tensors: tuple[Tensor, ...], logsumexp_BHT: Tensor) -> None:
    arrays = [_Array(x.data_ptr(), *x.stride()[:3]) for x in tensors]
    _ask_here(name, arrays, logsumexp_BHT, tensors[0].shape, tensors[0].dtype)


def _ask_here(
    name: str,
    arrays: Sequence[_Array],
    logsumexp_BHT: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> None:
    found = _kernel()
    assert found is not None
    _ask(found, name, arrays, logsumexp_BHT.data_ptr(), shape, dtype == torch.bfloat16)


def _ask(
    kernel: ctypes.CDLL,
    name: str,
    arrays: Sequence[_Array],
    logsumexp: int,
    shape: Sequence[int],
    lower: bool,
) -> None:
    function = getattr(kernel, f"attention_{name}")
    function.restype = None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool)
    function((_Array * len(arrays))(*arrays), logsumexp, ctypes.byref(_Sizes(*shape)), lower)


def _kernel() -> ctypes.CDLL | None:
    """The loaded library; None where there is none."""
    return kernels(_is_right, "attention")


def _is_right(kernel: ctypes.CDLL) -> bool:
    """Whether a few numbers, forward and backward, are what float64 gives written out.

    In NumPy: the first call may be inside `vmap`, autocast or without gradients.
    """
    shape = B, H, T, K = 2, 2, 19, 5
    # Row by row: q, k, v, y, dy, dq, dk, dv.
    x = np.sin(7 * np.arange(8 * B * H * T * K)).reshape(8, *shape).astype(np.float32)
    logsumexp = np.empty((B, H, T), np.float32)
    given = [_Array(one.ctypes.data, *(step // 4 for step in one.strides[:3])) for one in x]

    q, k, v, _, dy = x[:5].astype(np.float64)
    scores = np.where(np.tri(T, dtype=bool), q @ k.swapaxes(-1, -2) / math.sqrt(K), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y, dv = weights @ v, weights.swapaxes(-1, -2) @ dy
    dweights = dy @ v.swapaxes(-1, -2)
    dscores = weights * (dweights - (dy * y).sum(-1, keepdims=True)) / math.sqrt(K)
    wanted = [y, dscores @ k, dscores.swapaxes(-1, -2) @ q, dv]

    _ask(kernel, "forward", given[:4], logsumexp.ctypes.data, shape, False)
    ordered = [given[4], *given[:4], *given[5:]]
    _ask(kernel, "backward", ordered, logsumexp.ctypes.data, shape, False)
    return np.allclose(x[[3, 5, 6, 7]], wanted, rtol=0, atol=TOLERANCE)
