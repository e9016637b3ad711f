"""Products of linear maps on a CPU by our own kernels, with what is done to each row beside them.

MKL chooses an AVX2 kernel for float32 on processors of other makers, and repacks; oneDNN's bfloat16
needs casts and a dispatch, with a matrix unit (AMX) too. Where ours are not known to be faster they
are not asked (`products_pay`; figures: benchmarks/README.md).

Axes: N rows, K inputs, M outputs.
"""

from __future__ import annotations

import ctypes
from ctypes import CDLL, c_bool, c_int, c_void_p
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paribus.engine.kernels.calling import TOLERANCE, address, kernels


class _Sizes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in "NKM")


class OfNorm(NamedTuple):
    """What the gradient of a norm needs: its input [N, M], gain [M] and numbers of rows [N, 2]."""

    x: Tensor
    gain: Tensor | None
    stats: Tensor
    centred: bool
    has_bias: bool


def are_for(dtype: torch.dtype, *widths: int) -> bool:
    """Whether rows of that type and these widths are multiplied here, and not by PyTorch.

    Two bfloat16 are multiplied at once: widths are even.
    """
    found = _kernel()
    lower = dtype == torch.bfloat16
    if found is None or not found.products_pay(lower):
        return False
    return not lower or all(width % 2 == 0 for width in widths)


def times(
    x_NK: Tensor, weight: Tensor, bias_M: Tensor | None = None, *, turned: bool = False
) -> Tensor:
    """[N, M] x_NK times the weight [K, M], or [M, K] where it is `turned`, plus the bias.

    All that is given is contiguous, here and below; weights and biases are float32.
    """
    size = _size(x_NK, weight.shape[0 if turned else 1])
    y_NM = x_NK.new_empty(size.N, size.M)
    places = (address(x_NK), address(weight), turned, address(bias_M), address(y_NM))
    _ask("rows", x_NK, size, *places)
    return y_NM


def plus(x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None, given_NM: Tensor) -> Tensor:
    """[N, M] float32: `given_NM`, float32, plus the map of x_NK."""
    size = _size(x_NK, len(weight_MK))
    out_NM = torch.empty_like(given_NM)
    _ask("residual", x_NK, size, *map(address, (x_NK, weight_MK, bias_M, given_NM, out_NM)))
    return out_NM


def activated(
    kind: int, x_NK: Tensor, weight_MK: Tensor, bias_M: Tensor | None
) -> tuple[Tensor, Tensor]:
    """[N, M] the slopes of an activation, one of `activations.KINDS`, of the map of x_NK, and what
    it gives."""
    size = _size(x_NK, len(weight_MK))
    slope_NM, y_NM = (x_NK.new_empty(size.N, size.M) for _ in range(2))
    places = (*map(address, (x_NK, weight_MK, bias_M)), kind, address(slope_NM), address(y_NM))
    _ask("activation", x_NK, size, *places)
    return slope_NM, y_NM


def activated_back(dy_NK: Tensor, weight_KM: Tensor, slope_NM: Tensor) -> Tensor:
    """[N, M] the gradient of an activation's input, from that of the map after it."""
    dx_NM = torch.empty_like(slope_NM)
    places = map(address, (dy_NK, weight_KM, slope_NM, dx_NM))
    _ask("activation_back", dy_NK, _size(dy_NK, weight_KM.shape[1]), *places)
    return dx_NM


def normed_back(
    dy_NK: Tensor, weight_KM: Tensor, norm: OfNorm, given_NM: Tensor, *, replaces: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """([N, M] `given_NM` plus the gradient of a norm's input, the same in the type of dy_NK, [M] of
    its gain, [M] of its bias), from that of the map after it; in float32 but for the second.

    replaces: whether `given_NM` is nobody else's, and is overwritten.
    """
    M = weight_KM.shape[1]
    dx_NM = given_NM if replaces else torch.empty_like(given_NM)
    lower_NM = torch.empty_like(dx_NM, dtype=dy_NK.dtype) if dy_NK.dtype != dx_NM.dtype else None
    dgain = None if norm.gain is None else given_NM.new_empty(M)
    dbias = given_NM.new_empty(M) if norm.has_bias else None
    before = map(address, (dy_NK, weight_KM, norm.x, norm.gain, norm.stats))
    after = map(address, (given_NM, dx_NM, dgain, dbias, lower_NM))
    _ask("norm_back", dy_NK, _size(dy_NK, M), *before, norm.centred, *after)
    return dx_NM, dx_NM if lower_NM is None else lower_NM, dgain, dbias


def of_columns(dy_NM: Tensor, x_NK: Tensor, *, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    """The gradients of a weight and bias, [M, K] and [M] float32."""
    size = _size(x_NK, dy_NM.shape[1])
    dweight_MK = x_NK.new_empty(size.M, size.K, dtype=torch.float32)
    dbias_M = dweight_MK.new_empty(size.M) if has_bias else None
    _ask("columns", x_NK, size, *map(address, (dy_NM, x_NK, dweight_MK, dbias_M)))
    return dweight_MK, dbias_M


def _size(x_NK: Tensor, M: int) -> _Sizes:
    return _Sizes(*x_NK.shape, M)


def _ask(name: str, x: Tensor, size: _Sizes, *given: object) -> None:
    found = _kernel()
    assert found is not None
    lower = x.dtype == torch.bfloat16
    getattr(found, f"products_{name}")(lower, ctypes.byref(size), *given)


def _kernel() -> CDLL | None:
    return kernels(_is_right, "products")


_ARGUMENTS = {
    "rows": (*(c_void_p,) * 2, c_bool, *(c_void_p,) * 2),
    "residual": (c_void_p,) * 5,
    "activation": (*(c_void_p,) * 3, c_int, *(c_void_p,) * 2),
    "activation_back": (c_void_p,) * 4,
    "norm_back": (*(c_void_p,) * 5, c_bool, *(c_void_p,) * 5),
    "columns": (c_void_p,) * 4,
}


def _is_right(kernel: CDLL) -> bool:
    """Whether products whose tiles are cut at all ends are what float64 gives, of types that are
    asked for: a system may refuse a processor's matrix unit, and ends who uses it."""
    kernel.products_pay.argtypes, kernel.products_pay.restype = (c_bool,), c_bool
    for name, arguments in _ARGUMENTS.items():
        function = getattr(kernel, f"products_{name}")
        function.argtypes, function.restype = (c_bool, c_void_p, *arguments), None
    return all(
        _one_is_right(kernel, lower) for lower in (False, True) if kernel.products_pay(lower)
    )


def _one_is_right(kernel: CDLL, lower: bool) -> bool:
    N, K, M = 525, 34, 46
    shapes = ((N, K), (N, M), (M, K), (M,))
    x, dy, w, bias = (
        np.sin(7 * np.arange(np.prod(shape)) / (1 + i)).reshape(shape).astype(np.float32)
        for i, shape in enumerate(shapes)
    )
    if lower:  # cut off, so that no rounding is left to do
        x, dy, w = (_cut(one) for one in (x, dy, w))
    rows = [_upper(one) if lower else one for one in (x, dy)]
    y, dx = (np.empty_like(one) for one in rows[::-1])
    dw, dbias = np.empty_like(w), np.empty_like(bias)

    def at(*arrays: np.ndarray) -> list[int]:
        return [array.ctypes.data for array in arrays]

    def size(*numbers: int) -> object:
        return ctypes.byref(_Sizes(*numbers))

    kernel.products_rows(lower, size(N, K, M), *at(rows[0], w), True, *at(bias, y))
    kernel.products_rows(lower, size(N, M, K), *at(rows[1], w), False, None, *at(dx))
    kernel.products_columns(lower, size(N, K, M), *at(rows[1], rows[0], dw, dbias))
    wide_x, wide_dy, wide_w = (one.astype(np.float64) for one in (x, dy, w))
    exact = ((dw, wide_dy.T @ wide_x), (dbias, wide_dy.sum(0)))
    rounded = ((y, wide_x @ wide_w.T + bias), (dx, wide_dy @ wide_w))
    tolerance = 2**-8 if lower else TOLERANCE
    return all(
        np.allclose(found, known, rtol=TOLERANCE, atol=10 * TOLERANCE) for found, known in exact
    ) and all(
        np.allclose(_lower(found) if lower else found, known, rtol=tolerance, atol=10 * TOLERANCE)
        for found, known in rounded
    )


def _cut(x: np.ndarray) -> np.ndarray:
    return _lower(_upper(x))


def _upper(x: np.ndarray) -> np.ndarray:
    """The upper halves of float32: bfloat16."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def _lower(x: np.ndarray) -> np.ndarray:
    """bfloat16 as float32."""
    return (x.astype(np.uint32) << 16).view(np.float32)
