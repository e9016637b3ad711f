"""Norms, activations and AdamW's step on a CPU: one pass over rows of numbers each.

Axes: N rows, D numbers of each; of AdamW, R replicas of N numbers.
"""

from __future__ import annotations

from ctypes import c_double, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from paribus.engine.ops.kernels.calling import (
    address,
    are_plain,
    has_kernels,
    kernels,
    lower_dtype,
    refuse_second_derivative,
)
from paribus.engine.ops.kernels.self_check import ACTIVATIONS


def supports_norm(x: Tensor, gain_D: Tensor | None, bias_D: Tensor | None) -> bool:
    """Tell whether `norm` computes it: all plain float32 on a CPU, of one width.

    The kernel reads addresses: what has another width or distances it would read as what it is not.
    """
    return (
        x.dtype == torch.float32
        and x.ndim > 0
        and are_plain(x, gain_D, bias_D)
        and x.numel() > 0
        and all(one is None or _is_along(x, one) for one in (gain_D, bias_D))
        and has_kernels()
    )


def _is_along(x: Tensor, one: Tensor) -> bool:
    return one.dtype == torch.float32 and one.shape == x.shape[-1:] and one.is_contiguous()


def norm(
    x: Tensor,
    gain_D: Tensor | None,
    bias_D: Tensor | None,
    eps: float,
    *,
    centred: bool,
    cast_output: bool = False,
) -> Tensor:
    """Return (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) gain + bias over the last axis.

    LayerNorm; where it is not `centred`, the same with a mean of 0, RMSNorm. In float32; with
    `cast_output`, the result is rounded to what autocast multiplies in.
    """
    dtype = (lower_dtype() if cast_output else None) or x.dtype
    return _Norm.apply(x, gain_D, bias_D, eps, centred, dtype)  # type: ignore[no-any-return]


def supports_activation(*tensors: Tensor) -> bool:
    """Tell whether `activation`, or `gated` of two alike, computes it."""
    return (
        are_plain(*tensors)
        and all(x.dtype == tensors[0].dtype and x.shape == tensors[0].shape for x in tensors)
        and has_kernels()
    )


def activation(kind: str, x: Tensor) -> Tensor:
    """Return one of `ACTIVATIONS` of every number: of the type of x, in float32 on the way."""
    return _Activation.apply(x, ACTIVATIONS[kind])  # type: ignore[no-any-return]


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Return SiLU(gate) up, the same way."""
    return _Gated.apply(gate, up)  # type: ignore[no-any-return]


def supports_adamw(*rows_RN: Tensor) -> bool:
    """Tell whether `adamw_step` computes it: rows of plain float32 on a CPU."""
    return (
        are_plain(*rows_RN)
        and all(x.ndim == 2 and x.dtype == torch.float32 and x.stride(1) == 1 for x in rows_RN)
        and has_kernels()
    )


def adamw_step(
    rows_RN: tuple[Tensor, Tensor, Tensor, Tensor],
    rates_R1: Tensor,
    t: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Write weights -= rate (m / c1) / (sqrt(v / c2) + eps) in place.

    rows_RN: weights, gradients, first moments and second moments; all but gradients are written.
    t: int64, the step from 0, [] or [R, 1]. rates_R1: float32.
    """
    if t.ndim:
        for r, rate_1 in enumerate(rates_R1.expand(len(t), 1)):
            one = (x[r : r + 1] for x in rows_RN)
            adamw_step(tuple(one), rate_1[None], t[r, 0], betas, eps)  # type: ignore[arg-type]
        return
    places = (c_void_p * 4)(*(x.data_ptr() for x in rows_RN))
    strides = (c_int64 * 4)(*(x.stride(0) for x in rows_RN))
    rates_R = rates_R1.expand(len(rows_RN[0]), 1).contiguous()
    times = (rates_R.data_ptr(), t.data_ptr(), (c_double * 2)(*betas), eps)
    kernels().adamw_step(places, strides, *times, *rows_RN[0].shape)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        eps: float,
        centred: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        x, D = x.contiguous(), x.shape[-1]
        N = x.numel() // D
        y, stats_N2 = torch.empty_like(x, dtype=dtype), x.new_empty(N, 2)
        lower = dtype == torch.bfloat16
        places = (address(one) for one in (x, gain, bias))
        kernels().norm_forward(*places, eps, centred, N, D, address(y), lower, address(stats_N2))
        ctx.save_for_backward(x, gain, stats_N2)
        ctx.centred, ctx.has_bias = centred, bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("normalization")
        x, gain, stats_N2 = ctx.saved_tensors
        dy, D = grad_outputs[0].contiguous(), x.shape[-1]
        dx = torch.empty_like(x)
        dgain = None if gain is None else torch.empty_like(gain)
        dbias = x.new_empty(D) if ctx.has_bias else None
        lower = dy.dtype == torch.bfloat16
        places = (address(one) for one in (x, gain, stats_N2))
        sizes = (ctx.centred, len(stats_N2), D)
        kernels().norm_backward(
            address(dy), lower, *places, *sizes, *map(address, (dx, dgain, dbias))
        )
        return dx, dgain, dbias, None, None, None


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: int) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        slope = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        lower = x.dtype == torch.bfloat16
        kernels().activation_forward(kind, *map(address, (x, slope, y)), x.numel(), lower)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("activations")
        (slope,) = ctx.saved_tensors
        dy = grad_outputs[0].to(slope.dtype).contiguous()
        dx = torch.empty_like(slope)
        lower = slope.dtype == torch.bfloat16
        kernels().activation_backward(*map(address, (dy, slope, dx)), slope.numel(), lower)
        return dx, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        y = torch.empty_like(up)
        _ask_gated("forward", gate, up, y)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("activations")
        gate, up = ctx.saved_tensors
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        _ask_gated("backward", grad_outputs[0].to(up.dtype).contiguous(), gate, up, dgate, dup)
        return dgate, dup


def _ask_gated(name: str, *tensors: Tensor) -> None:
    last = tensors[-1]
    places = (c_void_p * len(tensors))(*map(address, tensors))
    getattr(kernels(), f"gated_{name}")(places, last.numel(), last.dtype == torch.bfloat16)
