"""Linear maps and residual sums on a CPU. Products are PyTorch's in bfloat16, and in float32 ours
where they were measured to be faster; what is around them is our kernels'.

Axes: N rows, K inputs, M outputs.
"""

from __future__ import annotations

from ctypes import CDLL, c_bool, c_int64, c_void_p
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.kernels.calling import (
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
        x_NK = x.reshape(-1, x.shape[-1]).to(dtype)
        weight_MK = weight.to(dtype)
        if own := _own_products(dtype):
            x_NK, weight_MK = x_NK.contiguous(), weight_MK.contiguous()
            y_NM = _times(own, x_NK, weight_MK, bias, turned=True)
        elif bias is None:
            y_NM = x_NK @ weight_MK.t()
        else:
            y_NM = torch.addmm(bias.to(dtype), x_NK, weight_MK.t())
        ctx.save_for_backward(x_NK, weight_MK)
        ctx.shape, ctx.dtype, ctx.has_bias = x.shape, x.dtype, bias is not None
        return y_NM.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("linear maps")
        x_NK, weight_MK = ctx.saved_tensors
        dy_NM = grad_outputs[0].reshape(len(x_NK), -1).to(x_NK.dtype).contiguous()
        dx = dweight = dbias = None
        own = _own_products(x_NK.dtype)
        if ctx.needs_input_grad[0]:
            dx_NK = _times(own, dy_NM, weight_MK) if own else dy_NM @ weight_MK
            dx = dx_NK.view(ctx.shape).to(ctx.dtype)
        if own and ctx.needs_input_grad[1]:
            dweight, dbias = _of_weight_and_bias(own, dy_NM, x_NK, ctx.has_bias)
        elif ctx.needs_input_grad[1]:
            dweight = (dy_NM.t() @ x_NK).float()
        if dbias is None and ctx.has_bias and ctx.needs_input_grad[2]:
            dbias = _column_sums(dy_NM)
        return dx, dweight, dbias, None


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


def _own_products(dtype: torch.dtype) -> CDLL | None:
    """The library, if it is to multiply numbers of that type."""
    found = _kernel() if dtype == torch.float32 else None
    return found if found is not None and found.products_pay() else None


def _times(
    found: CDLL, x_NK: Tensor, weight: Tensor, bias_M: Tensor | None = None, *, turned: bool = False
) -> Tensor:
    """[N, M] x_NK times the weight [K, M], or [M, K] where it is `turned`, plus the bias."""
    N, K = x_NK.shape
    M = weight.shape[0 if turned else 1]
    y_NM = x_NK.new_empty(N, M)
    places = (address(x_NK), address(weight), turned, address(bias_M))
    found.products_rows(*places, N, K, M, address(y_NM))
    return y_NM


def _of_weight_and_bias(
    found: CDLL, dy_NM: Tensor, x_NK: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor | None]:
    """Their gradients, [M, K] and [M]."""
    (N, M), K = dy_NM.shape, x_NK.shape[1]
    dweight_MK, dbias_M = x_NK.new_empty(M, K), x_NK.new_empty(M) if has_bias else None
    places = map(address, (dweight_MK, dbias_M))
    found.products_columns(address(dy_NM), address(x_NK), N, K, M, *places)
    return dweight_MK, dbias_M


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
    sums_are = all(np.allclose(found, known, rtol=0, atol=TOLERANCE) for found, known in pairs)
    return sums_are and _products_are_right(kernel)


def _products_are_right(kernel: CDLL) -> bool:
    """The same of products, whose tiles are cut at all three ends."""
    kernel.products_pay.restype = c_bool
    kernel.products_rows.argtypes = (*(c_void_p,) * 2, c_bool, c_void_p, *(c_int64,) * 3, c_void_p)
    kernel.products_columns.argtypes = (*(c_void_p,) * 2, *(c_int64,) * 3, *(c_void_p,) * 2)
    kernel.products_rows.restype = kernel.products_columns.restype = None
    N, K, M = 261, 35, 45
    x, dy, w, bias = (
        np.sin(7 * np.arange(np.prod(shape)) / (1 + i)).reshape(shape).astype(np.float32)
        for i, shape in enumerate(((N, K), (N, M), (M, K), (M,)))
    )
    y, dx, dw, dbias = (np.empty_like(like) for like in (dy, x, w, bias))

    def at(*arrays: np.ndarray) -> list[int]:
        return [array.ctypes.data for array in arrays]

    kernel.products_rows(*at(x, w), True, *at(bias), N, K, M, *at(y))
    kernel.products_rows(*at(dy, w), False, None, N, M, K, *at(dx))
    kernel.products_columns(*at(dy, x), N, K, M, *at(dw, dbias))
    wide_x, wide_dy, wide_w = (one.astype(np.float64) for one in (x, dy, w))
    pairs = (
        (y, wide_x @ wide_w.T + bias),
        (dx, wide_dy @ wide_w),
        (dw, wide_dy.T @ wide_x),
        (dbias, wide_dy.sum(0)),
    )
    return all(np.allclose(found, known, rtol=0, atol=10 * TOLERANCE) for found, known in pairs)
