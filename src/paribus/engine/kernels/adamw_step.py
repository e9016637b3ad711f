"""A step of AdamW on a CPU in one pass over rows of weights, by our own kernel.

Axes: R replicas, N numbers of each.
"""

from __future__ import annotations

from ctypes import CDLL, c_double, c_float, c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor

from paribus.engine.kernels.calling import TOLERANCE, are_plain, kernels


def is_for(*rows_RN: Tensor) -> bool:
    """Whether `adamw_step` can be asked: rows of plain float32 on a CPU, with a kernel."""
    return (
        are_plain(*rows_RN)
        and all(x.ndim == 2 and x.dtype == torch.float32 and x.stride(1) == 1 for x in rows_RN)
        and _kernel() is not None
    )


def adamw_step(
    rows_RN: tuple[Tensor, Tensor, Tensor, Tensor],
    rates_R1: Tensor,
    t: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """weights -= rate (m / c1) / (sqrt(v / c2) + eps), in place.

    rows_RN: weights, gradients, first moments and second moments; all but gradients are written.
    t: int64, the step from 0, [] or [R, 1]. rates_R1: float32.
    """
    if t.ndim:
        for r, rate_1 in enumerate(rates_R1.expand(len(t), 1)):
            one = (x[r : r + 1] for x in rows_RN)
            adamw_step(tuple(one), rate_1[None], t[r, 0], betas, eps)  # type: ignore[arg-type]
        return
    found = _kernel()
    assert found is not None
    places = (c_void_p * 4)(*(x.data_ptr() for x in rows_RN))
    strides = (c_int64 * 4)(*(x.stride(0) for x in rows_RN))
    rates_R = rates_R1.expand(len(rows_RN[0]), 1).contiguous()
    times = (rates_R.data_ptr(), t.data_ptr(), (c_double * 2)(*betas), eps)
    found.adamw_step(places, strides, *times, *rows_RN[0].shape)


def _kernel() -> CDLL | None:
    return kernels(_is_right, "AdamW")


def _is_right(kernel: CDLL) -> bool:
    """Whether a step is what float64 gives written out."""
    kernel.adamw_step.argtypes = (*(c_void_p,) * 5, c_float, c_int64, c_int64)
    kernel.adamw_step.restype = None
    R, N, t, betas, eps = 2, 21, np.array(3), (0.9, 0.95), 1e-8
    weights, gradients, mean, square = np.sin(7 * np.arange(4 * R * N)).reshape(4, R, N)
    rates, square = np.array([0.1, 0.01]), square**2
    m = betas[0] * mean + (1 - betas[0]) * gradients
    v = betas[1] * square + (1 - betas[1]) * gradients**2
    c1, c2 = (1 - beta ** (t + 1.0) for beta in betas)
    wanted = [weights - rates[:, None] * (m / c1) / (np.sqrt(v / c2) + eps), m, v]
    rows = [x.astype(np.float32) for x in (weights, gradients, mean, square)]
    given = rates.astype(np.float32)
    kernel.adamw_step(
        (c_void_p * 4)(*(x.ctypes.data for x in rows)),
        (c_int64 * 4)(*[N] * 4),
        given.ctypes.data,
        t.ctypes.data,
        (c_double * 2)(*betas),
        *(eps, R, N),
    )
    return np.allclose([rows[0], *rows[2:]], wanted, rtol=0, atol=TOLERANCE)
