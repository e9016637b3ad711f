"""Self-check of a compiled library against float64 results, before its first use.

`python -m paribus.engine.ops.kernels.self_check LIBRARY` exits with an error that names the first
wrong operation. It runs in a separate process, because the operating system may kill a process that
uses a matrix unit without permission.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from paribus.engine.ops import functional as ops
from paribus.engine.ops.kernels import compiling

D, H, ROWS = 32, 2, (2, 19)


def wrong_operation() -> str | None:
    """Return the first operation whose results differ from float64, or None if all agree."""
    x = [*ROWS, D]
    norm = partial(ops.norm, eps=1e-3, cast_output=True)
    checks: dict[str, tuple[Callable[..., Tensor], list[list[int]]]] = {
        "attention": (partial(ops.attention, is_causal=True), [[2, H, 19, 16]] * 3),
        "LayerNorm": (lambda x, *w: norm(x, gain_D=w[0], bias_D=w[1], centred=True), [x, [D], [D]]),
        "RMSNorm": (lambda x, w: norm(x, gain_D=w, bias_D=None, centred=False), [x, [D]]),
        **{kind: (partial(ops.activation, kind), [x]) for kind in ops.ACTIVATIONS},
        "gated activation": (ops.gated, [x, x]),
        "linear map": (ops.linear, [x, [46, D], [46]]),
    }
    for name, (call, shapes) in checks.items():
        inputs = [0.3 * torch.sin(7 * torch.arange(torch.Size(s).numel())).view(s) for s in shapes]
        expected = _results(call, [tensor.double() for tensor in inputs])
        for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
            with torch.autocast("cpu", dtype=dtype, enabled=dtype == torch.bfloat16):
                pairs = zip(_results(call, inputs), expected, strict=True)
            if any((a - b).abs().max() > tolerance * (1 + b.abs().max()) for a, b in pairs):
                return f"{name} in {dtype}"
    return None


def _results(call: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return the result of a call, followed by the gradient with respect to every input."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    y = call(*leaves)
    return [y, *torch.autograd.grad(y, leaves, y.detach())]


if __name__ == "__main__":
    compiling.library = lambda: Path(sys.argv[1])  # type: ignore
    if name := wrong_operation():
        sys.exit(f"wrong results for {name}")
