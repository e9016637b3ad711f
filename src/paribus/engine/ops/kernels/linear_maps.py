"""Linear maps on a CPU, fused with row operations before or after the product.

On some processors, MKL uses an AVX2 kernel for float32 and repacks operands; oneDNN needs casts and
a dispatch for bfloat16. The compiled kernels are used only where they are known to be faster (see
`multiplies` and benchmarks/README.md).

Axes: N rows, K inputs, M outputs. Arguments are contiguous; weights and biases are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paribus.engine.ops.kernels.calling import address, can_read, int64s, kernels, product_dtype


def supports(x: Tensor, weight_MK: Tensor, bias_M: Tensor | None) -> bool:
    """Return whether the compiled kernel supports these tensors and is known to be faster."""
    parameters = [weight_MK] if bias_M is None else [weight_MK, bias_M]
    return (
        torch.is_grad_enabled()  # otherwise autocast rounds each weight once for many calls
        and can_read(x, *parameters)
        and all(parameter.dtype == torch.float32 for parameter in parameters)
        and product_dtype() in (x.dtype, torch.bfloat16)
        and x.numel() > 0
        and multiplies(product_dtype(), *weight_MK.shape)
    )


class _Linear(torch.autograd.Function):
    """Linear map from x [..., K] to [..., M], computed in a given dtype.

    In bfloat16, operands are rounded once, and the rounded values are saved for the backward pass.
    The gradient of the bias is summed in float32.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        x_NK, weight_MK = x.reshape(-1, x.shape[-1]).to(dtype).contiguous(), weight.contiguous()
        ctx.save_for_backward(x_NK, weight_MK)
        ctx.shape, ctx.dtype, ctx.has_bias = x.shape, x.dtype, bias is not None
        return times(x_NK, weight_MK, bias, transposed=True).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        x_NK, weight_MK = ctx.saved_tensors  # read once: checkpointing recomputes them
        dy_NM = grad_outputs[0].reshape(len(x_NK), -1).to(x_NK.dtype).contiguous()
        dx = dweight = dbias = None
        if ctx.needs_input_grad[0]:
            dx = times(dy_NM, weight_MK).view(ctx.shape).to(ctx.dtype)
        if any(ctx.needs_input_grad[1:3]):
            dweight, dbias = column_products(dy_NM, x_NK, has_bias=ctx.has_bias)
        return dx, dweight, dbias, None


def multiplies(dtype: torch.dtype, *widths: int) -> bool:
    """Return whether the compiled kernels are faster for this dtype and these matrix widths.

    The kernels must be available. Widths must be even in bfloat16, because elements are multiplied
    in pairs.
    """
    is_lower = dtype == torch.bfloat16
    are_even = all(width % 2 == 0 for width in widths)
    return (are_even or not is_lower) and kernels().products_pay(is_lower)


def times(
    x_NK: Tensor, weight: Tensor, bias_M: Tensor | None = None, *, transposed: bool = False
) -> Tensor:
    """Return x_NK times the weight plus the bias, [N, M].

    The weight is [K, M], or [M, K] if `transposed`.
    """
    M = weight.shape[0 if transposed else 1]
    y_NM = x_NK.new_empty(len(x_NK), M)
    _call("rows", x_NK, M, address(weight), transposed, address(bias_M), address(y_NM))
    return y_NM


def add_product(x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None, sum_NM: Tensor) -> Tensor:
    """Return `sum_NM` (float32) plus the linear map of x_NK."""
    out_NM = torch.empty_like(sum_NM)
    _call("residual", x_NK, len(weight_MK), *map(address, (weight_MK, bias_M, sum_NM, out_NM)))
    return out_NM


def activated_product(
    kind: int, x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the derivative and value [N, M] of an activation after a linear map of x_NK.

    Args:
        kind: index in `rowwise.ACTIVATIONS`.
    """
    M = len(weight_MK)
    slope_NM, y_NM = (x_NK.new_empty(len(x_NK), M) for _ in range(2))
    pointers = (*map(address, (weight_MK, bias_M)), kind, address(slope_NM), address(y_NM))
    _call("activation", x_NK, M, *pointers)
    return slope_NM, y_NM


def activation_gradient(dy_NK: Tensor, weight_KM: Tensor, slope_NM: Tensor) -> Tensor:
    """Return the gradient [N, M] with respect to an activation's input.

    Args:
        dy_NK: gradient with respect to the output of the next linear map.
        weight_KM: weight of the next linear map.
        slope_NM: derivative of the activation.
    """
    dx_NM = torch.empty_like(slope_NM)
    M = weight_KM.shape[1]
    _call("activation_back", dy_NK, M, *map(address, (weight_KM, slope_NM, dx_NM)))
    return dx_NM


def norm_gradient(
    dy_NK: Tensor,
    weight_KM: Tensor,
    norm: tuple[Tensor, Tensor | None, Tensor, bool, bool],
    sum_NM: Tensor,
    *,
    in_place: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Add the gradient with respect to a norm's input to `sum_NM`.

    Args:
        dy_NK: gradient with respect to the output of the next linear map.
        weight_KM: weight of the next linear map.
        norm: input [N, M], gain, row statistics [N, 2], `centred`, and whether it has a bias.
        sum_NM: float32 tensor to add to.
        in_place: whether to overwrite `sum_NM`.

    Returns the sum, the sum in the dtype of dy_NK, and the gradients [M] of gain and bias.
    """
    M, (x_NM, gain_M, stats_N2, centred, has_bias) = weight_KM.shape[1], norm
    dx_NM = sum_NM if in_place else torch.empty_like(sum_NM)
    lower_NM = torch.empty_like(dx_NM, dtype=dy_NK.dtype) if dy_NK.dtype != dx_NM.dtype else None
    dgain = None if gain_M is None else sum_NM.new_empty(M)
    dbias = sum_NM.new_empty(M) if has_bias else None
    before = map(address, (weight_KM, x_NM, gain_M, stats_N2))
    after = map(address, (sum_NM, dx_NM, dgain, dbias, lower_NM))
    _call("norm_back", dy_NK, M, *before, centred, *after)
    return dx_NM, dx_NM if lower_NM is None else lower_NM, dgain, dbias


def column_products(dy_NM: Tensor, x_NK: Tensor, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    """Return dy_NM^T x_NK [M, K] and, if `has_bias`, the column sums of dy_NM [M], in float32."""
    (M, K), is_lower = (dy_NM.shape[1], x_NK.shape[1]), x_NK.dtype == torch.bfloat16
    dweight_MK = x_NK.new_empty(M, K, dtype=torch.float32)
    dbias_M = dweight_MK.new_empty(M) if has_bias else None
    sizes = int64s(len(x_NK), K, M)
    kernels().products_columns(is_lower, sizes, *map(address, (dy_NM, x_NK, dweight_MK, dbias_M)))
    return dweight_MK, dbias_M


def _call(name: str, x_NK: Tensor, M: int, *arguments: object) -> None:
    """Call the kernel `products_<name>` on the rows x_NK, with M outputs."""
    sizes, is_lower = int64s(*x_NK.shape, M), x_NK.dtype == torch.bfloat16
    getattr(kernels(), f"products_{name}")(is_lower, sizes, address(x_NK), *arguments)
