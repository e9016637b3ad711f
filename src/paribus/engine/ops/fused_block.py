"""A pre-norm block on a CPU as one function: x + attention(norm(x)), then x + mlp(norm(x)).

It computes what its parts compute, in their order, so that every bit is the same as when each part
is called alone. What it spares is what PyTorch and Python do around thirty functions, and where
products are ours, the way of a row to memory and back between a product and what follows it.

Axes: B sequences, T positions, D channels.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paribus.engine.ops.kernels import linear_maps, rowwise
from paribus.engine.ops.kernels.calling import are_plain, lower_dtype, refuse_second_derivative
from paribus.engine.ops.kernels.causal_attention import MOST_CHANNELS, _SelfAttention
from paribus.engine.ops.kernels.linear_maps import (
    OfNorm,
    _Linear,
    _Residual,
    gradient_rows,
    of_weight_and_bias,
    rows,
)
from paribus.engine.ops.kernels.rowwise import _Activation, _Norm
from paribus.engine.ops.kernels.self_check import ACTIVATIONS


class NormParameters(NamedTuple):
    """Of a norm: see `functional.norm`."""

    gain: Tensor
    bias: Tensor | None
    eps: float
    centred: bool


class MapParameters(NamedTuple):
    """Of a linear map: see `functional.linear`."""

    weight: Tensor
    bias: Tensor | None


class BlockParameters(NamedTuple):
    """All of a block, in the order in which they are used, and one of `ACTIVATIONS`."""

    attention_norm: NormParameters
    qkv: MapParameters
    out: MapParameters
    mlp_norm: NormParameters
    up: MapParameters
    down: MapParameters
    n_head: int
    activation: str

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The parameters, two of each part."""
        return tuple(one for part in self[:6] for one in part[:2])  # type: ignore[union-attr]


class FusedBlock:
    """Computes a block at once where that gives the bits that its parts give.

    `block` has an `attention` and an `mlp`, before each a norm. A part can be fused whose class
    says `fuses = True` itself: one of the user's own that inherits from it computes something else.
    """

    def __init__(self, block: Any) -> None:
        self._block = (block.attention_norm, block.attention, block.mlp_norm, block.mlp)
        self._dropout = block.mlp_dropout
        self._inner = tuple(block.modules())[1:]
        self._are_known = all(vars(type(part)).get("fuses", False) for part in self._block)

    def __call__(self, x_BTD: Tensor) -> Tensor | None:
        """Return [B, T, D], of a stream in float32; None where its parts have to be called."""
        if not self._are_known or not self.can_fuse(x_BTD.shape[1]):
            return None
        parameters = self._parameters()
        return fused_block(x_BTD, parameters) if supports(x_BTD, parameters) else None

    def can_fuse(self, T: int) -> bool:
        """Tell whether nobody looks inside, nothing is dropped, and attention over T is plain."""
        drops = self._dropout.training and self._dropout.p > 0
        return (
            not drops
            and self._block[1].is_plain(T)
            and not any(one._forward_hooks or one._forward_pre_hooks for one in self._inner)
            and not any(one._backward_hooks or one._backward_pre_hooks for one in self._inner)
        )

    def _parameters(self) -> BlockParameters:
        norm1, attention, norm2, mlp = self._block
        norms = [
            NormParameters(norm.weight, getattr(norm, "bias", None), norm.eps, norm.centred)
            for norm in (norm1, norm2)
        ]
        qkv, out, up, down = (
            MapParameters(one.weight, one.bias)
            for one in (attention.qkv, attention.out, mlp.up, mlp.down)
        )
        return BlockParameters(norms[0], qkv, out, norms[1], up, down, attention.n_head, mlp.kind)


def fused_block(x_BTD: Tensor, parameters: BlockParameters) -> Tensor:
    """Return [B, T, D], of a stream in float32. Causal; nothing is dropped."""
    dtype = lower_dtype() or torch.float32
    return _Block.apply(x_BTD, parameters, dtype, *parameters.tensors)  # type: ignore[no-any-return]


def supports(x_BTD: Tensor, parameters: BlockParameters) -> bool:
    """Tell whether `fused_block` computes it: all of plain float32 on a CPU, with kernels."""
    tensors = (x_BTD, *parameters.tensors)
    return (
        x_BTD.shape[-1] <= MOST_CHANNELS * parameters.n_head
        and are_plain(*tensors)
        and all(one is None or one.dtype == torch.float32 for one in tensors)
        and x_BTD.is_contiguous()
        and all(rowwise.supports_norm(x_BTD, *one[:2]) for one in (parameters[0], parameters[3]))
    )


class _Kept:
    """The `ctx` of a part of the block: what it keeps for its gradient."""

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
        block: BlockParameters,
        dtype: torch.dtype,
        *parameters: Tensor | None,
    ) -> Tensor:
        (B, T, D), H = x.shape, block.n_head
        ctx.kept = kept = [_Kept() for _ in range(8)]
        norm1, qkv, attention, out, norm2, up, activation, down = kept
        h = _Norm.forward(norm1, x, *block.attention_norm, dtype)
        h = _Linear.forward(qkv, h, *block.qkv, dtype)
        h = _SelfAttention.forward(attention, h.view(B, T, 3 * H, D // H))
        x = _sum(out, x, h, block.out, dtype)
        h = _Norm.forward(norm2, x, *block.mlp_norm, dtype)
        h = _activated(up, activation, h, block.up, ACTIVATIONS[block.activation], dtype)
        x = _sum(down, x, h, block.down, dtype)
        ctx.save_for_backward(*(one for part in kept for one in part.saved_tensors))
        ctx.counts, ctx.dtype = [len(part.saved_tensors) for part in kept], dtype
        for part in kept:
            part.saved_tensors = ()
        return x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("blocks")
        saved = iter(ctx.saved_tensors)
        for part, count in zip(ctx.kept, ctx.counts, strict=True):
            part.saved_tensors = tuple(islice(saved, count))
        norm1, qkv, attention, out, norm2, up, activation, down = ctx.kept
        dx = grad_outputs[0].contiguous()
        dh, *of_down = _activated_back(down, activation, dx.to(ctx.dtype))
        dx, lower, of_up, of_norm2 = _normed_back(up, norm2, dh, dx, replaces=False)
        dh, *of_out = _Linear.backward(out, lower)[:3]
        dh = _SelfAttention.backward(attention, dh)
        dx, _, of_qkv, of_norm1 = _normed_back(qkv, norm1, dh, dx, replaces=True)
        for part in ctx.kept:
            part.saved_tensors = ()
        of_parts = (of_norm1, of_qkv, of_out, of_norm2, of_up, of_down)
        return dx, None, None, *(one for part in of_parts for one in part)


def _sum(kept: Any, x: Tensor, h: Tensor, given: MapParameters, dtype: torch.dtype) -> Tensor:
    """Return x plus the map of h."""
    if linear_maps.multiplies(dtype, *given.weight.shape):
        _keep_map(kept, h, given, dtype)
        h_NK, weight_MK = kept.saved_tensors
        return linear_maps.plus(h_NK, weight_MK, given.bias, x)
    more = _Linear.forward(kept, h, *given, dtype)
    return _Residual.forward(None, x, more) if more.dtype == torch.bfloat16 else x + more


def _activated(
    kept_map: Any, kept: Any, h: Tensor, given: MapParameters, kind: int, dtype: torch.dtype
) -> Tensor:
    """Return the activation of the map of h."""
    if linear_maps.multiplies(dtype, *given.weight.shape):
        _keep_map(kept_map, h, given, dtype)
        h_NK, weight_MK = kept_map.saved_tensors
        slope_NM, y_NM = linear_maps.activated(kind, h_NK, weight_MK, given.bias)
        kept.save_for_backward(slope_NM.view(*h.shape[:-1], -1))
        return y_NM.view(*h.shape[:-1], -1)
    return _Activation.forward(kept, _Linear.forward(kept_map, h, *given, dtype), kind)


def _keep_map(kept: Any, h: Tensor, given: MapParameters, dtype: torch.dtype) -> None:
    """Keep what `_Linear.forward` keeps."""
    kept.save_for_backward(rows(h, dtype), given.weight.contiguous())
    kept.is_ours, kept.has_bias = True, given.bias is not None
    kept.shape, kept.dtype = h.shape, h.dtype


def _activated_back(kept_map: Any, kept: Any, dy: Tensor) -> tuple[Any, ...]:
    """Return gradients of an activation's input, and of weight and bias of the map after it."""
    if not kept_map.is_ours:
        dh, *of_map = _Linear.backward(kept_map, dy)[:3]
        return _Activation.backward(kept, dh)[0], *of_map
    h_NK, weight_MK = kept_map.saved_tensors
    dy_NM = gradient_rows(h_NK, dy)
    (slope,) = kept.saved_tensors
    dx_NM = linear_maps.activated_back(dy_NM, weight_MK, rows(slope, slope.dtype))
    return dx_NM.view(slope.shape), *of_weight_and_bias(kept_map, h_NK, dy_NM)


def _normed_back(
    kept_map: Any, kept: Any, dy: Tensor, dx: Tensor, *, replaces: bool
) -> tuple[Tensor, Tensor, list[Any], list[Any]]:
    """Return dx plus the gradient of a norm's input, the same in the type of dy, and the gradients
    of weight and bias of the map after it and of gain and bias of the norm.

    replaces: whether dx may be overwritten.
    """
    if not kept_map.is_ours:
        dh, *of_map = _Linear.backward(kept_map, dy)[:3]
        more, *of_norm = _Norm.backward(kept, dh)[:3]
        dx = dx + more
        return dx, dx.to(dy.dtype), of_map, of_norm
    x, gain, stats_N2 = kept.saved_tensors
    norm = OfNorm(x, gain, stats_N2, kept.centred, kept.has_bias)
    h_NK, weight_MK = kept_map.saved_tensors
    dy_NM = gradient_rows(h_NK, dy)
    dx, lower, *of_norm = linear_maps.normed_back(dy_NM, weight_MK, norm, dx, replaces=replaces)
    return dx, lower, list(of_weight_and_bias(kept_map, h_NK, dy_NM)), of_norm
