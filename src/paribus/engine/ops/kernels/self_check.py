"""Known answers of the compiled kernels: a few numbers each, against float64 written out.

All in NumPy: the first call of a kernel may be inside `vmap`, autocast or without gradients.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import CDLL, c_double, c_int64, c_void_p

import numpy as np

from paribus.engine.ops.kernels.compiling import AttentionArray, AttentionSizes, ProductSizes

TOLERANCE = 1e-5
ACTIVATIONS = {"gelu": 0, "gelu_tanh": 1, "relu2": 2}


def wrong_numbers(kernel: CDLL) -> str | None:
    """Return what of the library gives wrong numbers; None where all is right."""
    checks = {
        "attention": _attention,
        "normalization": lambda kernel: _norm(kernel, True) and _norm(kernel, False),
        "activations": lambda kernel: _activations(kernel) and _gated(kernel),
        "sums": _sums,
        # A system may refuse a processor's matrix unit, and ends who uses it.
        "products": lambda kernel: all(
            _products(kernel, lower) for lower in (False, True) if kernel.products_pay(lower)
        ),
        "AdamW": _adamw,
    }
    return next((what for what, is_right in checks.items() if not is_right(kernel)), None)


def _sines(*shape: int) -> np.ndarray:
    return np.sin(7 * np.arange(np.prod(shape))).reshape(shape).astype(np.float32)


def _at(*arrays: np.ndarray) -> list[int]:
    return [array.ctypes.data for array in arrays]


def _are_close(*pairs: tuple[np.ndarray, np.ndarray], rtol: float = 0.0) -> bool:
    """Tell whether (found, known) agree, of every pair."""
    return all(np.allclose(found, known, rtol=rtol, atol=TOLERANCE) for found, known in pairs)


def _attention(kernel: CDLL) -> bool:
    shape = B, H, T, K = 2, 2, 19, 5
    x = _sines(8, *shape)  # row by row: q, k, v, y, dy, dq, dk, dv
    logsumexp = np.empty((B, H, T), np.float32)
    given = [AttentionArray(one.ctypes.data, *(step // 4 for step in one.strides[:3])) for one in x]

    q, k, v, _, dy = x[:5].astype(np.float64)
    scores = np.where(np.tri(T, dtype=bool), q @ k.swapaxes(-1, -2) / math.sqrt(K), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y, dv = weights @ v, weights.swapaxes(-1, -2) @ dy
    dweights = dy @ v.swapaxes(-1, -2)
    dscores = weights * (dweights - (dy * y).sum(-1, keepdims=True)) / math.sqrt(K)
    wanted = [y, dscores @ k, dscores.swapaxes(-1, -2) @ q, dv]

    def ask(function: ctypes._NamedFuncPointer, arrays: Sequence[AttentionArray]) -> None:
        places = (AttentionArray * len(arrays))(*arrays)
        function(places, logsumexp.ctypes.data, ctypes.byref(AttentionSizes(*shape)), False)

    ask(kernel.attention_forward, given[:4])
    ask(kernel.attention_backward, [given[4], *given[:4], *given[5:]])
    return _are_close(*zip(x[[3, 5, 6, 7]], wanted, strict=True))


def _norm(kernel: CDLL, centred: bool) -> bool:
    N, D, eps = 5, 37, 1e-3
    x, dy = _sines(2, N, D)
    gain, bias = np.cos(3 * np.arange(2 * D)).reshape(2, D).astype(np.float32)
    y, dx = np.empty((2, N, D), np.float32)
    stats, (dgain, dbias) = np.empty((N, 2), np.float32), np.empty((2, D), np.float32)
    kernel.norm_forward(*_at(x, gain, bias), eps, centred, N, D, *_at(y), False, *_at(stats))
    places = (*_at(dy), False, *_at(x, gain, stats))
    kernel.norm_backward(*places, centred, N, D, *_at(dx, dgain, dbias))

    wide = x.astype(np.float64)
    away = wide - wide.mean(-1, keepdims=True) if centred else wide
    inverse = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + eps)
    hat, a = away * inverse, dy.astype(np.float64) * gain
    level = a.mean(-1, keepdims=True) if centred else 0
    slope = (a * hat).mean(-1, keepdims=True)
    return _are_close(
        (y, hat * gain + bias),
        (dx, (a - level - hat * slope) * inverse),
        (dgain, (dy * hat).sum(0)),
        (dbias, dy.sum(0)),
    )


def _activations(kernel: CDLL) -> bool:
    x = np.linspace(-12, 12, 75).astype(np.float32)
    wide, dy = x.astype(np.float64), _sines(75)
    phi = 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in wide]))
    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (wide + 0.044715 * wide**3))
    inner = root * (1 + 3 * 0.044715 * wide**2)
    positive = np.maximum(wide, 0)
    known = {
        "gelu": (wide * phi, phi + wide * np.exp(-(wide**2) / 2) / math.sqrt(2 * math.pi)),
        "gelu_tanh": (wide * (1 + t) / 2, (1 + t) / 2 + wide * (1 - t**2) * inner / 2),
        "relu2": (positive**2, 2 * positive),
    }
    y, dx, slope = np.empty((3, 75), np.float32)
    for name, kind in ACTIVATIONS.items():
        kernel.activation_forward(kind, *_at(x, slope, y), 75, False)
        kernel.activation_backward(*_at(dy, slope, dx), 75, False)
        value, wanted_slope = known[name]
        if not _are_close((y, value), (dx, dy * wanted_slope), rtol=1e-6):
            return False
    return True


def _gated(kernel: CDLL) -> bool:
    x = np.linspace(-12, 12, 75).astype(np.float32)
    wide, (dy, up) = x.astype(np.float64), _sines(2, 75)
    y, dx, dup = np.empty((3, 75), np.float32)
    kernel.gated_forward((c_void_p * 3)(*_at(x, up, y)), 75, False)
    kernel.gated_backward((c_void_p * 5)(*_at(dy, x, up, dx, dup)), 75, False)
    s = 1 / (1 + np.exp(-wide))
    slope = s * (1 + wide * (1 - s))
    return _are_close((y, wide * s * up), (dx, dy * up * slope), (dup, dy * wide * s), rtol=1e-6)


def _sums(kernel: CDLL) -> bool:
    N, M = 6, 149
    x = _sines(N, M)
    lower = _upper_halves(x)
    sums, of_lower = np.empty((2, M), np.float32)
    y = np.empty_like(x)
    kernel.sums_columns(*_at(x), False, N, M, *_at(sums))
    kernel.sums_columns(*_at(lower), True, N, M, *_at(of_lower))
    kernel.sums_residual(*_at(x, lower, y), x.size)
    cut = _widened(lower)
    return _are_close((sums, x.sum(0)), (of_lower, cut.sum(0)), (y, x + cut))


def _products(kernel: CDLL, lower: bool) -> bool:
    """Check products whose tiles are cut at all ends."""
    N, K, M = 525, 34, 46
    x, dy, w, bias = (
        np.sin(7 * np.arange(np.prod(shape)) / (1 + i)).reshape(shape).astype(np.float32)
        for i, shape in enumerate(((N, K), (N, M), (M, K), (M,)))
    )
    if lower:  # cut off, so that no rounding is left to do
        x, dy, w = (_widened(_upper_halves(one)) for one in (x, dy, w))
    rows = [_upper_halves(one) if lower else one for one in (x, dy)]
    y, dx = (np.empty_like(one) for one in rows[::-1])
    dw, dbias = np.empty_like(w), np.empty_like(bias)
    forward, backward = (ctypes.byref(ProductSizes(*size)) for size in ((N, K, M), (N, M, K)))
    kernel.products_rows(lower, forward, *_at(rows[0], w), True, *_at(bias, y))
    kernel.products_rows(lower, backward, *_at(rows[1], w), False, None, *_at(dx))
    kernel.products_columns(lower, forward, *_at(rows[1], rows[0], dw, dbias))
    wide_x, wide_dy, wide_w = (one.astype(np.float64) for one in (x, dy, w))
    if lower:
        y, dx = _widened(y), _widened(dx)
    rounded, exact = (2**-8 if lower else TOLERANCE), TOLERANCE
    return all(
        np.allclose(found, known, rtol=rtol, atol=10 * TOLERANCE)
        for found, known, rtol in (
            (dw, wide_dy.T @ wide_x, exact),
            (dbias, wide_dy.sum(0), exact),
            (y, wide_x @ wide_w.T + bias, rounded),
            (dx, wide_dy @ wide_w, rounded),
        )
    )


def _adamw(kernel: CDLL) -> bool:
    R, N, t, betas, eps = 2, 21, np.array(3), (0.9, 0.95), 1e-8
    weights, gradients, mean, square = np.sin(7 * np.arange(4 * R * N)).reshape(4, R, N)
    rates, square = np.array([0.1, 0.01]), square**2
    m = betas[0] * mean + (1 - betas[0]) * gradients
    v = betas[1] * square + (1 - betas[1]) * gradients**2
    c1, c2 = (1 - beta ** (t + 1.0) for beta in betas)
    moved = weights - rates[:, None] * (m / c1) / (np.sqrt(v / c2) + eps)
    rows = [x.astype(np.float32) for x in (weights, gradients, mean, square)]
    places, strides = (c_void_p * 4)(*_at(*rows)), (c_int64 * 4)(*[N] * 4)
    given = rates.astype(np.float32)
    kernel.adamw_step(places, strides, *_at(given, t), (c_double * 2)(*betas), eps, R, N)
    return _are_close((rows[0], moved), (rows[2], m), (rows[3], v))


def _upper_halves(x: np.ndarray) -> np.ndarray:
    """Return the upper halves of float32: bfloat16, cut off."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def _widened(x: np.ndarray) -> np.ndarray:
    """Return bfloat16 as float32."""
    return (x.astype(np.uint32) << 16).view(np.float32)
