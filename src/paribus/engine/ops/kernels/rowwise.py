"""Norms, activations and AdamW steps on a CPU, each in one pass over the rows.

Axes: N rows, D channels; for AdamW, R replicas, N parameters.
"""

from __future__ import annotations

from ctypes import c_double
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paribus.engine.ops.kernels.calling import address, can_read, int64s, kernels

ACTIVATIONS = {"gelu": 0, "gelu_tanh": 1, "relu2": 2}


def supports_norm(x: Tensor, gain_D: Tensor | None, bias_D: Tensor | None) -> bool:
    """Return whether `_Norm` supports these tensors: float32 on a CPU, with parameters [D]."""
    parameters = [parameter for parameter in (gain_D, bias_D) if parameter is not None]
    return (
        all(tensor.dtype == torch.float32 for tensor in (x, *parameters))
        and all(p.shape == x.shape[-1:] and p.is_contiguous() for p in parameters)
        and x.numel() > 0
        and can_read(x, *parameters)
    )


def supports_activation(*tensors: Tensor) -> bool:
    """Return whether the activation kernels support these tensors (equal shape and dtype)."""
    x = tensors[0]
    return can_read(*tensors) and all(y.dtype == x.dtype and y.shape == x.shape for y in tensors)


def adamw_step(
    rows_RN: tuple[Tensor, ...], rates_R1: Tensor, t: Tensor, betas: tuple[float, float], eps: float
) -> bool:
    """Perform the update of `optimizers.adamw` in place if the compiled kernel supports the rows.

    Returns whether it does.

    Args:
        rows_RN: weights, gradients, first moments and second moments.
        rates_R1: learning rates.
        t: 0-based step index, int64 [].
        betas: decay rates of the moments.
        eps: term added to the denominator.
    """
    if not can_read(*rows_RN):
        return False
    pointers = int64s(*(x.data_ptr() for x in rows_RN))
    strides = int64s(*(x.stride(0) for x in rows_RN))
    rates_R = rates_R1.expand(len(rows_RN[0]), 1).contiguous()
    times = (rates_R.data_ptr(), t.data_ptr(), (c_double * 2)(*betas), eps)
    kernels().adamw_step(pointers, strides, *times, *rows_RN[0].shape)
    return True


def norm_forward(
    x: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    eps: float,
    centred: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return the normalized x [..., D] in `dtype`, and row statistics [N, 2] for the gradient."""
    D = x.shape[-1]
    N = x.numel() // D
    y, stats_N2 = torch.empty_like(x, dtype=dtype), x.new_empty(N, 2)
    kernels().norm_forward(
        *map(address, (x, gain, bias)),
        *(eps, centred, N, D),
        *(address(y), dtype == torch.bfloat16, address(stats_N2)),
    )
    return y, stats_N2


class _Norm(torch.autograd.Function):
    """Autograd function of LayerNorm, or RMSNorm if not `centred`, with the result in `dtype`."""

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
        x = x.contiguous()
        y, stats_N2 = norm_forward(x, gain, bias, eps, centred, dtype)
        ctx.save_for_backward(x, gain, stats_N2)
        ctx.centred, ctx.has_bias = centred, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        x, gain, stats_N2 = ctx.saved_tensors
        dy, D = grad_outputs[0].contiguous(), x.shape[-1]
        dx = torch.empty_like(x)
        dgain = None if gain is None else torch.empty_like(gain)
        dbias = x.new_empty(D) if ctx.has_bias else None
        kernels().norm_backward(
            *(address(dy), dy.dtype == torch.bfloat16),
            *map(address, (x, gain, stats_N2)),
            *(ctx.centred, len(stats_N2), D),
            *map(address, (dx, dgain, dbias)),
        )
        return dx, dgain, dbias, None, None, None


class _Activation(torch.autograd.Function):
    """Autograd function of the activation with index `kind`, computed in float32."""

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
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        (slope,) = ctx.saved_tensors
        dy = grad_outputs[0].to(slope.dtype).contiguous()
        dx = torch.empty_like(slope)
        lower = slope.dtype == torch.bfloat16
        kernels().activation_backward(*map(address, (dy, slope, dx)), slope.numel(), lower)
        return dx, None


class _Gated(torch.autograd.Function):
    """Autograd function of the gated activation SiLU(gate) * up, computed in float32."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        y = torch.empty_like(up)
        _call_gated("forward", gate, up, y)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        gate, up = ctx.saved_tensors
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        dy = grad_outputs[0].to(up.dtype).contiguous()
        _call_gated("backward", dy, gate, up, dgate, dup)
        return dgate, dup


def _call_gated(name: str, *tensors: Tensor) -> None:
    x, pointers = tensors[0], int64s(*(tensor.data_ptr() for tensor in tensors))
    getattr(kernels(), f"gated_{name}")(pointers, x.numel(), x.dtype == torch.bfloat16)
