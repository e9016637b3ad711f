"""Benchmark of compiled CPU kernels against PyTorch's kernels.

    python benchmarks/compiled_attention.py [--precision float32]

The cases are attention alone, a training step of `quickstart`, and a step with a custom attention
module. As in a worker, one process uses one thread. CPU time is measured, because machines are
busy. "PyTorch" corresponds to PARIBUS_CPU_KERNELS=off.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F

from paribus.engine.data import load_dataset
from paribus.engine.machine.steps import build_stack
from paribus.engine.ops import identity
from paribus.engine.ops.kernels import causal_attention as kernel
from paribus.study import load_study

B, T, K, H = 16, 128, 16, 8
OWN = Path(__file__).parents[1] / "examples/architecture/ideas.py:ValueResidual"


def seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median CPU time of each function in seconds, calling them alternately."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            call()
            taken[name].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in taken.items()}


def attention_alone(dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Return functions that run attention forward and backward with each kernel."""
    qkv = torch.randn(B, T, 3 * H, K, dtype=dtype).requires_grad_()
    dy = torch.randn(B, T, H * K, dtype=dtype)

    def run(attend: Callable[..., torch.Tensor]) -> None:
        q, k, v = qkv.transpose(1, 2).split((H, H, H), dim=1)
        y = attend(q, k, v)
        torch.autograd.grad(y.transpose(1, 2).reshape(B, T, H * K).to(dtype), qkv, dy)

    def pytorch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)

    return {
        "PyTorch": lambda: run(pytorch),
        "compiled": lambda: run(lambda *qkv: kernel._CausalAttention.apply(*qkv)),
    }


def whole_step(precision: str) -> dict[str, Callable[[], object]]:
    """Return functions that run a training step of `quickstart`, with all probes, per kernel."""
    ours, theirs = two_steps(precision, {})

    def without() -> None:
        with patch("paribus.engine.ops.kernels.calling.kernels", lambda: None):
            theirs()

    return {"PyTorch": without, "compiled": ours}


def own_step(precision: str) -> dict[str, Callable[[], object]]:
    """Return functions that run a training step with a custom attention module, per kernel."""
    ours, theirs = two_steps(precision, {"model.modules.attention": str(OWN)})

    def without() -> None:
        with patch.object(kernel, "supports", lambda *tensors: False):
            theirs()

    return {"PyTorch": without, "compiled": ours}


def two_steps(precision: str, changes: dict[str, str]) -> tuple[Callable[[], None], ...]:
    """Create two identical trainers, and return their step functions."""
    flagship = {"training.precision": precision, "training.batch_size": B, "data.seq_len": T}
    study = load_study("quickstart", flagship | changes)
    dataset = load_dataset(study.data, study.folder)
    setting = study.setting(study.baseline)
    cpu = torch.device("cpu")
    return tuple(build_stack(study, setting, (1,), dataset, cpu).step for _ in range(2))


def main() -> None:
    """Time all cases and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if identity() == "torch":
        parser.error("compiled attention is not available; install a C++ compiler")
    for what, calls in (
        ("attention", attention_alone(getattr(torch, arguments.precision))),
        ("a step", whole_step(arguments.precision)),
        ("a step with a custom module", own_step(arguments.precision)),
    ):
        for call in calls.values():  # warm
            call()
        found = seconds(calls, arguments.rounds)
        times = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in found.items())
        print(
            f"{what}, {arguments.precision}: {times}, {found['PyTorch'] / found['compiled']:.2f} x"
        )


if __name__ == "__main__":
    main()
