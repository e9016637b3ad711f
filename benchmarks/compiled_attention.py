"""Our kernels against PyTorch's, in turn: attention alone, and all in a step of the flagship.

    python benchmarks/compiled_attention.py [--precision float32]

One process and one thread, as a worker has it. Processor time, because machines are busy; what is
printed as "PyTorch" is what a study gets with PARIBUS_CPU_KERNELS=off.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from paribus.engine.data import load_dataset
from paribus.engine.machine.assembly import build_stack
from paribus.engine.ops import identity, without_kernels
from paribus.engine.ops.kernels.causal_attention import causal_attention
from paribus.study import load_study

B, T, K, H = 16, 128, 16, 8


def seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median processor time of each, called in turn."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            call()
            taken[name].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in taken.items()}


def attention_alone(dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Forward and backward from a projection to what the next one reads."""
    qkv = torch.randn(B, T, 3 * H, K, dtype=dtype).requires_grad_()
    dy = torch.randn(B, T, H * K, dtype=dtype)

    def run(attend: Callable[..., torch.Tensor]) -> None:
        q, k, v = qkv.transpose(1, 2).split((H, H, H), dim=1)
        y = attend(q, k, v)
        torch.autograd.grad(y.transpose(1, 2).reshape(B, T, H * K).to(dtype), qkv, dy)

    def pytorch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)

    return {"PyTorch": lambda: run(pytorch), "compiled": lambda: run(causal_attention)}


def whole_step(precision: str) -> dict[str, Callable[[], object]]:
    """Return a step of the flagship with every probe, of two equal stacks."""
    flagship = {"training.precision": precision, "training.batch_size": B, "data.seq_len": T}
    study = load_study("quickstart", flagship)
    dataset = load_dataset(study.data, study.folder)
    ours, theirs = (
        build_stack(study, study.setting(study.baseline), (1,), dataset, torch.device("cpu"))
        for _ in range(2)
    )

    def without() -> None:
        with without_kernels():
            theirs.step()

    return {"PyTorch": without, "compiled": ours.step}


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if identity() == "torch":
        parser.error("there is no compiled attention here: is there a C++ compiler?")
    for what, calls in (
        ("attention", attention_alone(getattr(torch, arguments.precision))),
        ("a step", whole_step(arguments.precision)),
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
