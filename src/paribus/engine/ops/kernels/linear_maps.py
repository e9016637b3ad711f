"""Linear maps and residual sums on a CPU, with what is done to each row beside a product.

MKL chooses an AVX2 kernel for float32 on processors of other makers, and repacks; oneDNN's bfloat16
needs casts and a dispatch, with a matrix unit (AMX) too. Products are PyTorch's where ours are not
known to be faster (`multiplies`; figures: benchmarks/README.md).

Axes: N rows, K inputs, M outputs.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

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
from paribus.engine.ops.kernels.compiling import ProductSizes


def supports(x: Tensor, weight_MK: Tensor, bias_M: Tensor | None) -> bool:
    """Tell whether `linear` computes it."""
    parameters = [one for one in (weight_MK, bias_M) if one is not None]
    return (
        torch.is_grad_enabled()  # or else autocast rounds each weight once for many calls
        and are_plain(x, *parameters)
        and all(one.dtype == torch.float32 for one in parameters)
        and (lower_dtype() or torch.float32) in (x.dtype, torch.bfloat16)
        and x.numel() > 0
        and has_kernels()
    )


def linear(x: Tensor, weight_MK: Tensor, bias_M: Tensor | None) -> Tensor:
    """Return x [..., K] times the weight, plus the bias: [..., M].

    Inside autocast operands are rounded to bfloat16 once, and kept for the backward pass so. The
    gradient of the bias is summed in float32.
    """
    return _Linear.apply(x, weight_MK, bias_M, lower_dtype() or torch.float32)  # type: ignore[no-any-return]


def supports_residual(x: Tensor, more: Tensor) -> bool:
    """Tell whether `residual` computes it: a float32 stream, and bfloat16 that is added."""
    return (
        more.dtype == torch.bfloat16
        and x.dtype == torch.float32
        and x.shape == more.shape
        and are_plain(x, more)
        and has_kernels()
    )


def residual(x: Tensor, more: Tensor) -> Tensor:
    """Return x + more, float32."""
    return _Residual.apply(x, more)  # type: ignore[no-any-return]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        x_NK = rows(x, dtype)
        ctx.is_ours = multiplies(dtype, *weight.shape)
        if ctx.is_ours:  # which rounds the weight itself
            weight_MK = weight.contiguous()
            y_NM = times(x_NK, weight_MK, bias, turned=True)
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
        x_NK, weight_MK = ctx.saved_tensors  # once: what is computed again is there once
        dy_NM = gradient_rows(x_NK, grad_outputs[0])
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx_NK = times(dy_NM, weight_MK) if ctx.is_ours else dy_NM @ weight_MK
            dx = dx_NK.view(ctx.shape).to(ctx.dtype)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            dweight, dbias = of_weight_and_bias(ctx, x_NK, dy_NM)
        return dx, dweight, dbias, None


def rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x [..., K] as rows that are multiplied, [N, K]."""
    return x.reshape(-1, x.shape[-1]).to(dtype).contiguous()


def gradient_rows(x_NK: Tensor, dy: Tensor) -> Tensor:
    """Return the gradient of what `_Linear.forward` made of x, of any shape, as [N, M]."""
    return dy.reshape(len(x_NK), -1).to(x_NK.dtype).contiguous()


def of_weight_and_bias(ctx: Any, x_NK: Tensor, dy_NM: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return their gradients, [M, K] and [M] float32, from what `_Linear.forward` kept."""
    if ctx.is_ours:
        return of_columns(dy_NM, x_NK, has_bias=ctx.has_bias)
    return (dy_NM.t() @ x_NK).float(), _column_sums(dy_NM) if ctx.has_bias else None


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, more: Tensor) -> Tensor:
        x, more = x.contiguous(), more.contiguous()
        y = torch.empty_like(x)
        kernels().sums_residual(*map(address, (x, more, y)), x.numel())
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        return grad_outputs[0], grad_outputs[0].bfloat16()


def _column_sums(x_NM: Tensor) -> Tensor:
    """Return [M] float32."""
    N, M = x_NM.shape
    sums_M = torch.empty(M)
    kernels().sums_columns(address(x_NM), x_NM.dtype == torch.bfloat16, N, M, address(sums_M))
    return sums_M


class OfNorm(NamedTuple):
    """Needed for the gradient of a norm: its input [N, M], gain [M] and numbers of rows [N, 2]."""

    x: Tensor
    gain: Tensor | None
    stats: Tensor
    centred: bool
    has_bias: bool


def multiplies(dtype: torch.dtype, *widths: int) -> bool:
    """Tell whether rows of that type and these widths are multiplied here, and not by PyTorch.

    Two bfloat16 are multiplied at once: widths are even.
    """
    lower = dtype == torch.bfloat16
    if not has_kernels() or not kernels().products_pay(lower):
        return False
    return not lower or all(width % 2 == 0 for width in widths)


def times(
    x_NK: Tensor, weight: Tensor, bias_M: Tensor | None = None, *, turned: bool = False
) -> Tensor:
    """Return x_NK times the weight [K, M], or [M, K] where it is `turned`, plus the bias: [N, M].

    All that is given is contiguous, here and below; weights and biases are float32.
    """
    size = _sizes(x_NK, weight.shape[0 if turned else 1])
    y_NM = x_NK.new_empty(size.N, size.M)
    places = (address(x_NK), address(weight), turned, address(bias_M), address(y_NM))
    _ask("rows", x_NK, size, *places)
    return y_NM


def plus(x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None, given_NM: Tensor) -> Tensor:
    """Return `given_NM`, float32, plus the map of x_NK."""
    size = _sizes(x_NK, len(weight_MK))
    out_NM = torch.empty_like(given_NM)
    _ask("residual", x_NK, size, *map(address, (x_NK, weight_MK, bias_M, given_NM, out_NM)))
    return out_NM


def activated(
    kind: int, x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return ([N, M] the slopes of an activation of the map of x_NK, [N, M] its values)."""
    size = _sizes(x_NK, len(weight_MK))
    slope_NM, y_NM = (x_NK.new_empty(size.N, size.M) for _ in range(2))
    places = (*map(address, (x_NK, weight_MK, bias_M)), kind, address(slope_NM), address(y_NM))
    _ask("activation", x_NK, size, *places)
    return slope_NM, y_NM


def activated_back(dy_NK: Tensor, weight_KM: Tensor, slope_NM: Tensor) -> Tensor:
    """Return the gradient [N, M] of an activation's input, from that of the map after it."""
    dx_NM = torch.empty_like(slope_NM)
    places = map(address, (dy_NK, weight_KM, slope_NM, dx_NM))
    _ask("activation_back", dy_NK, _sizes(dy_NK, weight_KM.shape[1]), *places)
    return dx_NM


def normed_back(
    dy_NK: Tensor, weight_KM: Tensor, norm: OfNorm, given_NM: Tensor, *, replaces: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return (`given_NM` plus the gradient of a norm's input, the same in the type of dy_NK, the
    gradients [M] of its gain and bias), from that of the map after it.

    replaces: whether `given_NM` is nobody else's, and is overwritten.
    """
    M = weight_KM.shape[1]
    dx_NM = given_NM if replaces else torch.empty_like(given_NM)
    lower_NM = torch.empty_like(dx_NM, dtype=dy_NK.dtype) if dy_NK.dtype != dx_NM.dtype else None
    dgain = None if norm.gain is None else given_NM.new_empty(M)
    dbias = given_NM.new_empty(M) if norm.has_bias else None
    before = map(address, (dy_NK, weight_KM, norm.x, norm.gain, norm.stats))
    after = map(address, (given_NM, dx_NM, dgain, dbias, lower_NM))
    _ask("norm_back", dy_NK, _sizes(dy_NK, M), *before, norm.centred, *after)
    return dx_NM, dx_NM if lower_NM is None else lower_NM, dgain, dbias


def of_columns(dy_NM: Tensor, x_NK: Tensor, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of a weight and bias, [M, K] and [M] float32."""
    size = _sizes(x_NK, dy_NM.shape[1])
    dweight_MK = x_NK.new_empty(size.M, size.K, dtype=torch.float32)
    dbias_M = dweight_MK.new_empty(size.M) if has_bias else None
    _ask("columns", x_NK, size, *map(address, (dy_NM, x_NK, dweight_MK, dbias_M)))
    return dweight_MK, dbias_M


def _sizes(x_NK: Tensor, M: int) -> ProductSizes:
    return ProductSizes(*x_NK.shape, M)


def _ask(name: str, x: Tensor, sizes: ProductSizes, *given: object) -> None:
    lower = x.dtype == torch.bfloat16
    getattr(kernels(), f"products_{name}")(lower, ctypes.byref(sizes), *given)
