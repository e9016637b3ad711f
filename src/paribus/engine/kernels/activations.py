"""Activations of an MLP on a CPU by our own kernels, as PyTorch sees them."""

from __future__ import annotations

import math
from ctypes import CDLL, c_bool, c_int, c_int64, c_void_p
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paribus.engine.kernels.calling import (
    TOLERANCE,
    address,
    are_plain,
    kernels,
    refuse_second_derivative,
)

KINDS = {"gelu": 0, "gelu_tanh": 1, "relu2": 2}


def is_for(*tensors: Tensor) -> bool:
    """Whether `activation`, or `gated` of two alike, can be asked: on a CPU, with a kernel."""
    return (
        are_plain(*tensors)
        and all(x.dtype == tensors[0].dtype and x.shape == tensors[0].shape for x in tensors)
        and _kernel() is not None
    )


def activation(kind: str, x: Tensor) -> Tensor:
    """One of `KINDS`, number by number: of the type of x, in float32 on the way."""
    return _Activation.apply(x, KINDS[kind])  # type: ignore[no-any-return]


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """SiLU(gate) up, the same way."""
    return _Gated.apply(gate, up)  # type: ignore[no-any-return]


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: int) -> Tensor:
        found = _kernel()
        assert found is not None
        x = x.contiguous()
        y = torch.empty_like(x)
        slope = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        lower = x.dtype == torch.bfloat16
        found.activation_forward(kind, *map(address, (x, slope, y)), x.numel(), lower)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse_second_derivative("activations")
        found = _kernel()
        assert found is not None
        (slope,) = ctx.saved_tensors
        dy = grad_outputs[0].to(slope.dtype).contiguous()
        dx = torch.empty_like(slope)
        lower = slope.dtype == torch.bfloat16
        found.activation_backward(*map(address, (dy, slope, dx)), slope.numel(), lower)
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
    found, last = _kernel(), tensors[-1]
    assert found is not None
    places = (c_void_p * len(tensors))(*map(address, tensors))
    getattr(found, f"gated_{name}")(places, last.numel(), last.dtype == torch.bfloat16)


def _kernel() -> CDLL | None:
    return kernels(_is_right, "activations")


def _is_right(kernel: CDLL) -> bool:
    """Whether a few numbers, forward and backward, are what float64 gives written out."""
    kernel.activation_forward.argtypes = (c_int, *(c_void_p,) * 3, c_int64, c_bool)
    kernel.activation_backward.argtypes = (*(c_void_p,) * 3, c_int64, c_bool)
    for function in (kernel.gated_forward, kernel.gated_backward):
        function.argtypes = (c_void_p, c_int64, c_bool)
    for name in ("activation", "gated"):
        for way in ("forward", "backward"):
            getattr(kernel, f"{name}_{way}").restype = None
    n = 75
    x = np.linspace(-12, 12, n).astype(np.float32)
    dy, up = np.sin(7 * np.arange(2 * n)).reshape(2, n).astype(np.float32)
    wide = x.astype(np.float64)
    phi = 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in wide]))
    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (wide + 0.044715 * wide**3))
    inner = root * (1 + 3 * 0.044715 * wide**2)
    positive, s = np.maximum(wide, 0), 1 / (1 + np.exp(-wide))
    known = {
        "gelu": (wide * phi, phi + wide * np.exp(-(wide**2) / 2) / math.sqrt(2 * math.pi)),
        "gelu_tanh": (wide * (1 + t) / 2, (1 + t) / 2 + wide * (1 - t**2) * inner / 2),
        "relu2": (positive**2, 2 * positive),
    }
    right = True
    y, dx, dup = np.empty((3, n), np.float32)
    for name, kind in KINDS.items():
        places = (one.ctypes.data for one in (x, dup, y))
        kernel.activation_forward(kind, *places, n, False)
        places = (one.ctypes.data for one in (dy, dup, dx))
        kernel.activation_backward(*places, n, False)
        value, slope = known[name]
        right &= np.allclose([y, dx], [value, dy * slope], rtol=1e-6, atol=TOLERANCE)
    kernel.gated_forward((c_void_p * 3)(*(one.ctypes.data for one in (x, up, y))), n, False)
    all_five = (one.ctypes.data for one in (dy, x, up, dx, dup))
    kernel.gated_backward((c_void_p * 5)(*all_five), n, False)
    slope = s * (1 + wide * (1 - s))
    wanted = [wide * s * up, dy * up * slope, dy * wide * s]
    return bool(right & np.allclose([y, dx, dup], wanted, rtol=1e-6, atol=TOLERANCE))
