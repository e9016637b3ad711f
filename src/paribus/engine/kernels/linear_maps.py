"""Linear maps and residual sums on a CPU by our own kernels; products are PyTorch's where ours do
not pay.

Axes: N rows, K inputs, M outputs.
"""

from __future__ import annotations

from ctypes import CDLL, c_bool, c_int64, c_void_p
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.engine.kernels import products
from paribus.engine.kernels.calling import (
    TOLERANCE,
    address,
    are_plain,
    kernels,
    lower_dtype,
    refuse_second_derivative,
)


def linear(x: Tensor, weight_MK: Tensor, bias_M: Tensor | None = None) -> Tensor:
    """x [..., K] times the weight, plus the bias: [..., M], as `F.linear` gives it.

    Inside autocast operands are rounded to bfloat16 once, and kept for the backward pass so. The
    gradient of the bias is summed in float32.
    """
    parameters = [one for one in (weight_MK, bias_M) if one is not None]
    if (
        torch.is_grad_enabled()  # or else autocast rounds each weight once for many calls
        and are_plain(x, *parameters)
        and all(one.dtype == torch.float32 for one in parameters)
        and (lower := lower_dtype() or torch.float32) in (x.dtype, torch.bfloat16)
        and x.numel() > 0
        and _kernel() is not None
    ):
        return _Linear.apply(x, weight_MK, bias_M, lower)  # type: ignore[no-any-return]
    return F.linear(x, weight_MK, bias_M)


def residual(x: Tensor, more: Tensor) -> Tensor:
    """x + more, of one shape: a stream in float32, and what is added to it in any type."""
    if (
        more.dtype == torch.bfloat16
        and x.dtype == torch.float32
        and x.shape == more.shape
        and are_plain(x, more)
        and _kernel() is not None
    ):
        return _Residual.apply(x, more)  # type: ignore[no-any-return]
    return x + more


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        x_NK = rows(x, dtype)
        ctx.own = products.are_for(dtype, *weight.shape)
        if ctx.own:  # which rounds the weight itself
            weight_MK = weight.contiguous()
            y_NM = products.times(x_NK, weight_MK, bias, turned=True)
        else:
            weight_MK = weight.to(dtype)
            columns = weight_MK.t()
            y_NM = x_NK @ columns if bias is None else torch.addmm(bias.to(dtype), x_NK, columns)
        ctx.save_for_backward(x_NK, weight_MK)
        ctx.shape, ctx.dtype, ctx.has_bias = x.shape, x.dtype, bias is not None
        return y_NM.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("linear maps")
        _, weight_MK = ctx.saved_tensors
        dy_NM = gradient_rows(ctx, grad_outputs[0])
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx_NK = products.times(dy_NM, weight_MK) if ctx.own else dy_NM @ weight_MK
            dx = dx_NK.view(ctx.shape).to(ctx.dtype)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            dweight, dbias = of_weight_and_bias(ctx, dy_NM)
        return dx, dweight, dbias, None


def rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x [..., K] as rows that are multiplied, [N, K]."""
    return x.reshape(-1, x.shape[-1]).to(dtype).contiguous()


def gradient_rows(ctx: Any, dy: Tensor) -> Tensor:
    """The gradient of what `_Linear.forward` gave, in whatever shape it was read, as [N, M]."""
    x_NK, _ = ctx.saved_tensors
    return dy.reshape(len(x_NK), -1).to(x_NK.dtype).contiguous()


def of_weight_and_bias(ctx: Any, dy_NM: Tensor) -> tuple[Tensor, Tensor | None]:
    """Their gradients, [M, K] and [M] float32; of what `_Linear.forward` kept."""
    x_NK, _ = ctx.saved_tensors
    if ctx.own:
        return products.of_columns(dy_NM, x_NK, has_bias=ctx.has_bias)
    return (dy_NM.t() @ x_NK).float(), _column_sums(dy_NM) if ctx.has_bias else None


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, more: Tensor) -> Tensor:
        found = _kernel()
        assert found is not None
        x, more = x.contiguous(), more.contiguous()
        y = torch.empty_like(x)
        found.sums_residual(*map(address, (x, more, y)), x.numel())
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        return grad_outputs[0], grad_outputs[0].bfloat16()


def _column_sums(x_NM: Tensor) -> Tensor:
    """[M] float32."""
    found = _kernel()
    assert found is not None
    N, M = x_NM.shape
    sums_M = torch.empty(M)
    found.sums_columns(address(x_NM), x_NM.dtype == torch.bfloat16, N, M, address(sums_M))
    return sums_M


def _kernel() -> CDLL | None:
    return kernels(_is_right, "sums")


def _is_right(kernel: CDLL) -> bool:
    """Whether a few sums are right."""
    kernel.sums_columns.argtypes = (c_void_p, c_bool, c_int64, c_int64, c_void_p)
    kernel.sums_residual.argtypes = (*(c_void_p,) * 3, c_int64)
    kernel.sums_columns.restype = kernel.sums_residual.restype = None
    N, M = 6, 149
    x = np.sin(7 * np.arange(N * M)).reshape(N, M).astype(np.float32)
    lower = (x.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16, cut off
    cut = (lower.astype(np.uint32) << 16).view(np.float32)
    sums, of_lower = np.empty((2, M), np.float32)
    y = np.empty_like(x)
    kernel.sums_columns(x.ctypes.data, False, N, M, sums.ctypes.data)
    kernel.sums_columns(lower.ctypes.data, True, N, M, of_lower.ctypes.data)
    kernel.sums_residual(x.ctypes.data, lower.ctypes.data, y.ctypes.data, x.size)
    pairs = ((sums, x.sum(0)), (of_lower, cut.sum(0)), (y, x + cut))
    return all(np.allclose(found, known, rtol=0, atol=TOLERANCE) for found, known in pairs)
