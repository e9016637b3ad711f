"""LayerNorm and RMSNorm on a CPU by our own kernel, as PyTorch sees them.

Axes: N rows, D numbers of each.
"""

from __future__ import annotations

from ctypes import CDLL, c_bool, c_float, c_int64, c_void_p
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paribus.engine.kernels.calling import (
    TOLERANCE,
    address,
    are_plain,
    kernels,
    lower_dtype,
    refuse_second_derivative,
)

_FORWARD = (*(c_void_p,) * 3, c_float, c_bool, c_int64, c_int64, c_void_p, c_bool, c_void_p)
_BACKWARD = (c_void_p, c_bool, *(c_void_p,) * 3, c_bool, c_int64, c_int64, *(c_void_p,) * 3)


def is_for(x: Tensor, gain: Tensor | None, bias: Tensor | None) -> bool:
    """Whether `norm` can be asked: all plain float32 on a CPU, of one width, with a kernel.

    The kernel reads addresses: what has another width or distances it would read as what it is not.
    """
    return (
        x.dtype == torch.float32
        and x.ndim > 0
        and are_plain(x, gain, bias)
        and x.numel() > 0
        and all(one is None or _is_along(x, one) for one in (gain, bias))
        and _kernel() is not None
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
    lowers: bool = False,
) -> Tensor:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) gain + bias over the last axis, [..., D].

    LayerNorm; where it is not `centred`, the same with a mean of 0, RMSNorm. In float32; with
    `lowers`, the result is rounded to what autocast multiplies in.
    """
    dtype = (lower_dtype() if lowers else None) or x.dtype
    return _Norm.apply(x, gain_D, bias_D, eps, centred, dtype)  # type: ignore[no-any-return]


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
        found = _kernel()
        assert found is not None
        x, D = x.contiguous(), x.shape[-1]
        N = x.numel() // D
        y, stats_N2 = torch.empty_like(x, dtype=dtype), x.new_empty(N, 2)
        lower = dtype == torch.bfloat16
        places = (address(one) for one in (x, gain, bias))
        found.norm_forward(*places, eps, centred, N, D, address(y), lower, address(stats_N2))
        ctx.save_for_backward(x, gain, stats_N2)
        ctx.centred, ctx.has_bias = centred, bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("normalization")
        found = _kernel()
        assert found is not None
        x, gain, stats_N2 = ctx.saved_tensors
        dy, D = grad_outputs[0].contiguous(), x.shape[-1]
        dx = torch.empty_like(x)
        dgain = None if gain is None else torch.empty_like(gain)
        dbias = x.new_empty(D) if ctx.has_bias else None
        lower = dy.dtype == torch.bfloat16
        places = (address(one) for one in (x, gain, stats_N2))
        sizes = (ctx.centred, len(stats_N2), D)
        found.norm_backward(address(dy), lower, *places, *sizes, *map(address, (dx, dgain, dbias)))
        return dx, dgain, dbias, None, None, None


def _kernel() -> CDLL | None:
    return kernels(_is_right, "normalization")


def _is_right(kernel: CDLL) -> bool:
    """Whether a few numbers, forward and backward, are what float64 gives written out."""
    kernel.norm_forward.argtypes, kernel.norm_backward.argtypes = _FORWARD, _BACKWARD
    kernel.norm_forward.restype = kernel.norm_backward.restype = None
    return all(_one_is_right(kernel, centred) for centred in (True, False))


def _one_is_right(kernel: CDLL, centred: bool) -> bool:
    N, D, eps = 5, 37, 1e-3
    x, dy = np.sin(7 * np.arange(2 * N * D)).reshape(2, N, D).astype(np.float32)
    gain, bias = np.cos(3 * np.arange(2 * D)).reshape(2, D).astype(np.float32)
    y, dx = np.empty((2, N, D), np.float32)
    stats, (dgain, dbias) = np.empty((N, 2), np.float32), np.empty((2, D), np.float32)

    def at(*arrays: np.ndarray) -> list[int]:
        return [array.ctypes.data for array in arrays]

    kernel.norm_forward(*at(x, gain, bias), eps, centred, N, D, *at(y), False, *at(stats))
    places = (*at(dy), False, *at(x, gain, stats))
    kernel.norm_backward(*places, centred, N, D, *at(dx, dgain, dbias))

    wide = x.astype(np.float64)
    away = wide - wide.mean(-1, keepdims=True) if centred else wide
    inverse = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + eps)
    hat, a = away * inverse, dy.astype(np.float64) * gain
    level = a.mean(-1, keepdims=True) if centred else 0
    slope = (a * hat).mean(-1, keepdims=True)
    pairs = (
        (y, hat * gain + bias),
        (dx, (a - level - hat * slope) * inverse),
        (dgain, (dy * hat).sum(0)),
        (dbias, dy.sum(0)),
    )
    return all(np.allclose(found, known, rtol=0, atol=TOLERANCE) for found, known in pairs)
