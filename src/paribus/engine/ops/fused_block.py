"""A whole pre-norm block on a CPU as one function: x + attention(norm(x)), then x + mlp(norm(x)).

It computes what the parts of the block compute, in the same order and with the same bits. It saves
the overhead of PyTorch and Python around thirty functions, and rows stay in cache between one of
our products and the operation after it.

Axes: B sequences, T positions, D channels, H heads, K channels of a head; N, M as in `linear_maps`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paribus.engine.ops.kernels import linear_maps, rowwise
from paribus.engine.ops.kernels.calling import are_plain, lower_dtype, refuse_second_derivative
from paribus.engine.ops.kernels.causal_attention import MOST_CHANNELS, _SelfAttention
from paribus.engine.ops.kernels.linear_maps import (
    NormGradient,
    _Linear,
    _Residual,
    gradient_rows,
    multiplies,
    parameter_gradients,
    rows,
)
from paribus.engine.ops.kernels.rowwise import _Activation, _Norm

Tensors = tuple[Tensor | None, ...]


class BlockShape(NamedTuple):
    """Numbers of a block: eps and `centred` of its two norms, and one of `rowwise.ACTIVATIONS`."""

    n_head: int
    activation: int
    eps: tuple[float, float]
    centred: tuple[bool, bool]


def fused_if_possible(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compute a block's `forward(x, cache, shared)` by one function where it gives the same bits.

    A block has `attention_norm`, `attention`, `mlp_norm` and `mlp`. It can be fused if the class of
    each declares `fuses = True` (subclasses may compute something else), and nobody looks inside.
    """

    @wraps(forward)
    def call(block: Any, x_BTD: Tensor, cache: Any = None, shared: Any = None) -> Tensor:
        if cache is None and can_fuse(block, x_BTD.shape[1]):
            tensors = block_tensors(block)
            if supports(x_BTD, block.attention.n_head, tensors):
                norms = block.attention_norm, block.mlp_norm
                shape = BlockShape(
                    block.attention.n_head,
                    rowwise.ACTIVATIONS[block.mlp.kind],
                    (norms[0].eps, norms[1].eps),
                    (norms[0].centred, norms[1].centred),
                )
                return fused_block(x_BTD, shape, tensors)
        return forward(block, x_BTD, cache, shared)

    return call


def can_fuse(block: Any, T: int) -> bool:
    """Return True if a block has known parts, nothing is dropped and no hook looks inside."""
    parts = (block.attention_norm, block.attention, block.mlp_norm, block.mlp)
    return (
        block.is_pre
        and all(vars(type(part)).get("fuses", False) for part in parts)
        and not (block.mlp_dropout.training and block.mlp_dropout.p > 0)
        and block.attention.is_plain(T)
        and not any(
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
            for module in block.modules()
            if module is not block
        )
    )


def block_tensors(block: Any) -> Tensors:
    """Return weight and bias of each part in the order of their use."""
    attention, mlp = block.attention, block.mlp
    layers = (
        *(block.attention_norm, attention.qkv, attention.out),
        *(block.mlp_norm, mlp.up, mlp.down),
    )
    return tuple(x for layer in layers for x in (layer.weight, getattr(layer, "bias", None)))


def supports(x_BTD: Tensor, n_head: int, tensors: Tensors) -> bool:
    """Return True for tensors that `fused_block` computes: plain float32 on a CPU, with kernels."""
    return (
        x_BTD.shape[-1] <= MOST_CHANNELS * n_head
        and are_plain(x_BTD, *tensors)
        and all(x is None or x.dtype == torch.float32 for x in (x_BTD, *tensors))
        and x_BTD.is_contiguous()
        and rowwise.supports_norm(x_BTD, *tensors[0:2])
        and rowwise.supports_norm(x_BTD, *tensors[6:8])
    )


def fused_block(x_BTD: Tensor, shape: BlockShape, tensors: Tensors) -> Tensor:
    """Return [B, T, D], a float32 residual stream after the block."""
    return _Block.apply(x_BTD, shape, lower_dtype() or torch.float32, *tensors)


class _Context:
    """The `ctx` of one function inside the block: what it keeps for its gradient."""

    needs_input_grad = (True, True, True)

    def __init__(self) -> None:
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shape: BlockShape,
        dtype: torch.dtype,
        *tensors: Any,
    ) -> Tensor:
        (B, T, D), H = x.shape, shape.n_head
        gain1, bias1, *maps1, gain2, bias2, up_weight, up_bias, down_weight, down_bias = tensors
        qkv_weight, qkv_bias, out_weight, out_bias = maps1
        ctx.parts = [_Context() for _ in range(8)]
        norm1, qkv, attention, out, norm2, up, activation, down = ctx.parts
        h = _Norm.forward(norm1, x, gain1, bias1, shape.eps[0], shape.centred[0], dtype)
        h = _Linear.forward(qkv, h, qkv_weight, qkv_bias, dtype)
        h = _SelfAttention.forward(attention, h.view(B, T, 3 * H, D // H))
        x = _add_map(out, x, h, out_weight, out_bias, dtype)
        h = _Norm.forward(norm2, x, gain2, bias2, shape.eps[1], shape.centred[1], dtype)
        h = _activated_map(up, activation, h, up_weight, up_bias, shape.activation, dtype)
        x = _add_map(down, x, h, down_weight, down_bias, dtype)
        ctx.save_for_backward(*(tensor for part in ctx.parts for tensor in part.saved_tensors))
        ctx.counts, ctx.dtype = [len(part.saved_tensors) for part in ctx.parts], dtype
        for part in ctx.parts:  # autograd keeps the tensors
            part.saved_tensors = ()
        return x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative()
        saved = iter(ctx.saved_tensors)
        for part, count in zip(ctx.parts, ctx.counts, strict=True):
            part.saved_tensors = tuple(islice(saved, count))
        norm1, qkv, attention, out, norm2, up, activation, down = ctx.parts
        dx = grad_outputs[0].contiguous()
        dh, ddown = _activated_map_gradient(down, activation, dx.to(ctx.dtype))
        dx, lower, dup, dnorm2 = _norm_gradient(up, norm2, dh, dx, in_place=False)
        dh, *dout = _Linear.backward(out, lower)[:3]
        dh = _SelfAttention.backward(attention, dh)
        dx, _, dqkv, dnorm1 = _norm_gradient(qkv, norm1, dh, dx, in_place=True)
        for part in ctx.parts:
            part.saved_tensors = ()
        return dx, None, None, *dnorm1, *dqkv, *dout, *dnorm2, *dup, *ddown


def _add_map(ctx: Any, x: Tensor, h: Tensor, weight: Any, bias: Any, dtype: torch.dtype) -> Tensor:
    """Return x plus the linear map of h."""
    if multiplies(dtype, *weight.shape):
        h_NK, weight_MK = _keep_for_linear(ctx, h, weight, bias, dtype)
        return linear_maps.add_product(h_NK, weight_MK, bias, x)
    y = _Linear.forward(ctx, h, weight, bias, dtype)
    return _Residual.forward(None, x, y) if y.dtype == torch.bfloat16 else x + y


def _activated_map(
    map_ctx: Any, ctx: Any, h: Tensor, weight: Any, bias: Any, kind: int, dtype: torch.dtype
) -> Tensor:
    """Return the activation of the linear map of h."""
    if not multiplies(dtype, *weight.shape):
        return _Activation.forward(ctx, _Linear.forward(map_ctx, h, weight, bias, dtype), kind)
    h_NK, weight_MK = _keep_for_linear(map_ctx, h, weight, bias, dtype)
    slope_NM, y_NM = linear_maps.activated_product(kind, h_NK, weight_MK, bias)
    ctx.save_for_backward(slope_NM.view(*h.shape[:-1], -1))
    return y_NM.view(*h.shape[:-1], -1)


def _keep_for_linear(
    ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Keep what `Linear.forward` keeps, and return the operands of the product."""
    operands = rows(h, dtype), weight.contiguous()
    ctx.save_for_backward(*operands)
    ctx.is_ours, ctx.has_bias = True, bias is not None
    ctx.shape, ctx.dtype = h.shape, h.dtype
    return operands


def _activated_map_gradient(map_ctx: Any, ctx: Any, dy: Tensor) -> tuple[Tensor, Any]:
    """Return the gradients of an activation's input, and of the parameters of the map after it."""
    if not map_ctx.is_ours:
        dh, *dmap = _Linear.backward(map_ctx, dy)[:3]
        return _Activation.backward(ctx, dh)[0], dmap
    h_NK, weight_MK = map_ctx.saved_tensors
    dy_NM = gradient_rows(h_NK, dy)
    (slope,) = ctx.saved_tensors
    dx_NM = linear_maps.activation_gradient(dy_NM, weight_MK, rows(slope, slope.dtype))
    return dx_NM.view(slope.shape), parameter_gradients(map_ctx, h_NK, dy_NM)


def _norm_gradient(
    map_ctx: Any, ctx: Any, dy: Tensor, dx: Tensor, *, in_place: bool
) -> tuple[Tensor, Tensor, Any, Any]:
    """Add the gradient of a norm's input to dx, from the gradient dy of the map after it.

    Returns (the sum, the sum in the dtype of dy, gradients of the map's and the norm's parameters).
    """
    if not map_ctx.is_ours:
        dh, *dmap = _Linear.backward(map_ctx, dy)[:3]
        dinput, *dnorm = _Norm.backward(ctx, dh)[:3]
        dx = dx + dinput
        return dx, dx.to(dy.dtype), dmap, dnorm
    x, gain, stats_N2 = ctx.saved_tensors
    norm = NormGradient(x, gain, stats_N2, ctx.centred, ctx.has_bias)
    h_NK, weight_MK = map_ctx.saved_tensors
    dy_NM = gradient_rows(h_NK, dy)
    dx, lower, *dnorm = linear_maps.norm_gradient(dy_NM, weight_MK, norm, dx, in_place=in_place)
    return dx, lower, parameter_gradients(map_ctx, h_NK, dy_NM), dnorm
