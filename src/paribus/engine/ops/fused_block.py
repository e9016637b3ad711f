"""Pre-norm block on a CPU, fused into one autograd function.

The function computes x + attention(norm(x)), then x + mlp(norm(x)). The results are bitwise equal
to those of the separate parts. Fusion avoids the PyTorch and Python overhead of about thirty calls
and keeps rows in cache between a product and the next operation. It is used only if the compiled
kernels compute the products.

Axes: B sequences, T positions, D channels, H heads, K channels per head; N, M as in `linear_maps`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paribus.engine.ops.kernels import causal_attention, linear_maps, rowwise
from paribus.engine.ops.kernels.calling import can_read, product_dtype

Tensors = tuple[Any, ...]
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class BlockShape(NamedTuple):
    """Constants of a fused block: number of heads, activation, and options of the norms."""

    n_head: int
    activation: int  # index in `rowwise.ACTIVATIONS`
    eps: tuple[float, ...]  # of both norms
    centred: tuple[bool, ...]  # whether each norm is a LayerNorm


def fused_if_possible(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorate a block's `forward(x, cache, shared)` to call the fused function if possible.

    The block has the parts `attention_norm`, `attention`, `mlp_norm` and `mlp`. The class of each
    part must itself define `fuses = True`, because a subclass may compute something else, and no
    module inside the block may have a hook.
    """

    @wraps(forward)
    def call(block: Any, x_BTD: Tensor, cache: Any = None, shared: Any = None) -> Tensor:
        if cache is not None or not can_fuse(block, x_BTD.shape[1]):
            return forward(block, x_BTD, cache, shared)
        norms, attention, mlp = (block.attention_norm, block.mlp_norm), block.attention, block.mlp
        layers = (norms[0], attention.qkv, attention.out, norms[1], mlp.up, mlp.down)
        tensors = tuple(x for layer in layers for x in (layer.weight, getattr(layer, "bias", None)))
        if not supports(x_BTD, attention.n_head, tensors):
            return forward(block, x_BTD, cache, shared)
        kinds = tuple(norm.eps for norm in norms), tuple(norm.centred for norm in norms)
        shape = BlockShape(attention.n_head, rowwise.ACTIVATIONS[mlp.kind], *kinds)
        return _Block.apply(x_BTD, shape, product_dtype(), *tensors)

    return call


def can_fuse(block: Any, T: int) -> bool:
    """Return whether a block has only fusible parts, no dropout and no hooks."""
    parts = (block.attention_norm, block.attention, block.mlp_norm, block.mlp)
    inner = (module for module in block.modules() if module is not block)
    return (
        block.is_pre
        and all(vars(type(part)).get("fuses", False) for part in parts)
        and not (block.mlp_dropout.training and block.mlp_dropout.p > 0)
        and block.attention.is_plain(T)
        and not any(getattr(module, kind) for module in inner for kind in HOOKS)
    )


def supports(x_BTD: Tensor, n_head: int, tensors: Tensors) -> bool:
    """Return whether `_Block` supports these tensors: float32 on a CPU, with kernels available."""
    return (
        x_BTD.shape[-1] <= causal_attention.MOST_CHANNELS * n_head
        and can_read(x_BTD, *tensors)
        and x_BTD.is_contiguous()
        and rowwise.supports_norm(x_BTD, *tensors[0:2])
        and rowwise.supports_norm(x_BTD, *tensors[6:8])
        and linear_maps.multiplies(product_dtype(), x_BTD.shape[-1], len(tensors[8]))
    )


class _Block(torch.autograd.Function):
    """Autograd function that maps x [B, T, D] to the residual stream after the block."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: BlockShape, dtype: torch.dtype, *tensors: Any
    ) -> Tensor:
        (B, T, D), H = x.shape, shape.n_head
        gain1, bias1, w_qkv, b_qkv, w_out, b_out, gain2, bias2, w_up, b_up, w_down, b_down = tensors
        norms = zip(shape.eps, shape.centred, (dtype, dtype), strict=True)
        h1, stats1 = rowwise.norm_forward(x, gain1, bias1, *next(norms))
        qkv_NM = linear_maps.times(h1.view(-1, D), w_qkv, b_qkv, transposed=True)
        qkv = qkv_NM.view(B, T, 3 * H, D // H)
        y, logsumexp = causal_attention.forward(*causal_attention.split(qkv))
        y_ND = y.transpose(1, 2).view(-1, D)
        middle = linear_maps.add_product(y_ND, w_out, b_out, x)
        h2, stats2 = rowwise.norm_forward(middle, gain2, bias2, *next(norms))
        slope, a = linear_maps.activated_product(shape.activation, h2.view(-1, D), w_up, b_up)
        kept = x, h1, stats1, qkv, y, logsumexp, middle, h2, stats2, slope, a
        ctx.save_for_backward(*kept, *tensors)
        ctx.shape, ctx.dtype = shape, dtype
        return linear_maps.add_product(a, w_down, b_down, middle)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensors:
        kept, tensors = ctx.saved_tensors[:11], ctx.saved_tensors[11:]
        x, h1, stats1, qkv, y, logsumexp, middle, h2, stats2, slope, a = kept
        gain1, bias1, w_qkv, b_qkv, w_out, b_out, gain2, bias2, w_up, b_up, w_down, b_down = tensors
        D = x.shape[-1]
        dx = grad_outputs[0].contiguous()
        lower = dx.view(-1, D).to(ctx.dtype)
        down = linear_maps.column_products(lower, a, has_bias=b_down is not None)
        dh = linear_maps.activation_gradient(lower, w_down, slope)
        up = linear_maps.column_products(dh, h2.view(-1, D), has_bias=b_up is not None)
        norm = (middle, gain2, stats2, ctx.shape.centred[1], bias2 is not None)
        dx, lower, *norm2 = linear_maps.norm_gradient(dh, w_up, norm, dx, in_place=False)
        lower, y_ND = lower.view(-1, D), y.transpose(1, 2).view(-1, D)
        out = linear_maps.column_products(lower, y_ND, has_bias=b_out is not None)
        dy = linear_maps.times(lower, w_out)
        dqkv = causal_attention.projection_gradient(dy, qkv, y, logsumexp).view(len(dy), -1)
        into = linear_maps.column_products(dqkv, h1.view(-1, D), has_bias=b_qkv is not None)
        norm = (x, gain1, stats1, ctx.shape.centred[0], bias1 is not None)
        dx, _, *norm1 = linear_maps.norm_gradient(dqkv, w_qkv, norm, dx, in_place=True)
        return dx, None, None, *norm1, *into, *out, *norm2, *up, *down
