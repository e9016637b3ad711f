"""Compare a compiled library with float64 before it is used.

`python -m paribus.engine.ops.kernels.self_check LIBRARY` exits with `compiling.WRONG_NUMBERS` and
prints the first operation that is wrong. It runs in a process of its own, because a system may end
a process that uses a matrix unit it does not allow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from paribus.engine.ops import functional as ops
from paribus.engine.ops.fused_block import BlockShape, fused_block
from paribus.engine.ops.kernels import compiling, rowwise

D, H, ROWS, EPS = 32, 2, (2, 19), 1e-3


def wrong_operation() -> str | None:
    """Return the name of an operation whose results differ from float64; None if all agree."""
    x, weight, bias = [*ROWS, D], [46, D], [46]
    checks: dict[str, tuple[Callable[..., Tensor], list[list[int]]]] = {
        "attention": (ops.self_attention, [[*ROWS, 3 * H, 16]]),
        "LayerNorm": (partial(_norm, centred=True), [x, [D], [D]]),
        "RMSNorm": (partial(_norm, centred=False), [x, [D]]),
        **{kind: (partial(ops.activation, kind), [x]) for kind in ops.ACTIVATIONS},
        "gated activation": (ops.gated, [x, x]),
        "linear map": (ops.linear, [x, weight, bias]),
        "block": (_block, [x, [D], [3 * D, D], [D, D], [4 * D, D], [D, 4 * D]]),
        "AdamW": (_adamw, [[2, D]] * 4),
    }
    for name, (call, shapes) in checks.items():
        inputs = [_sines(*shape) for shape in shapes]
        expected = _results(call, [tensor.double() for tensor in inputs])
        if not _are_close(_results(call, inputs), expected, 1e-4):
            return name
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if not _are_close(_results(call, inputs), expected, 0.05):
                return f"{name} in bfloat16"
    return None


def _norm(x: Tensor, gain: Tensor, bias: Tensor | None = None, *, centred: bool) -> Tensor:
    return ops.norm(x, D, gain, bias, EPS, centred=centred, cast_output=True)


def _adamw(weights: Tensor, gradients: Tensor, mean: Tensor, square: Tensor) -> Tensor:
    rows = (weights.clone(), gradients, mean.clone(), square.square())
    ops.adamw_step(rows, rows[0].new_tensor([[0.1], [0.01]]), torch.tensor(3), (0.9, 0.95), 1e-8)
    return rows[0]


def _block(x: Tensor, gain: Tensor, *weights: Tensor) -> Tensor:
    """Return a block; in float32, fused."""
    qkv, out, up, down = weights
    if x.dtype == torch.float32:
        tensors = (gain, None, qkv, None, out, None, gain, None, up, None, down, None)
        shape = BlockShape(H, rowwise.ACTIVATIONS["relu2"], (EPS, EPS), (False, False))
        return fused_block(x, shape, tensors)
    heads = ops.linear(_norm(x, gain, centred=False), qkv).view(*ROWS, 3 * H, D // H)
    x = x + ops.linear(ops.self_attention(heads), out)
    hidden = ops.activation("relu2", ops.linear(_norm(x, gain, centred=False), up))
    return x + ops.linear(hidden, down)


def _results(call: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return the result of a call and, if it has one, its gradient by every input."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    if call is _adamw:
        with torch.no_grad():
            return [call(*leaves)]
    y = call(*leaves)
    return [y, *torch.autograd.grad(y, leaves, _sines(*y.shape).to(y.dtype))]


def _sines(*shape: int) -> Tensor:
    return 0.3 * torch.sin(7 * torch.arange(torch.Size(shape).numel())).view(shape)


def _are_close(results: list[Tensor], expected: list[Tensor], tolerance: float) -> bool:
    return all(
        (result - wide).abs().max() <= tolerance * (1 + wide.abs().max())
        for result, wide in zip(results, expected, strict=True)
    )


if __name__ == "__main__":
    compiling.library = lambda: Path(sys.argv[1])
    if name := wrong_operation():
        print(name)
        sys.exit(compiling.WRONG_NUMBERS)
