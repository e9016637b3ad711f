"""What bfloat16 changes: a study trained in float32 and in bfloat16, trial by trial.

    python benchmarks/precision.py [--study NAME] [--iterations N] [--seeds N]
    python benchmarks/precision.py --attention

Every trial is trained twice on one thread, from the same initial values on the same batches, and
evaluated in float32 on the whole validation split. Printed are the differences of validation loss,
bfloat16 minus float32, of each trial and of each contrast between arms, beside the limits that they
are held to and the standard deviation over seeds, which is the scale of anything a study can show.

A processor without bfloat16 multiplies it by a slow reference. There products of two bfloat16
matrices are taken in float32 and rounded once, which is what the instructions do: a product of two
bfloat16 numbers is exact in float32, sums are kept in float32, and what leaves is rounded to
nearest. The order of sums differs, as it does between any two processors. Speed is not measured.

`--attention` times the ways to attend in bfloat16 instead, forward and back, in turn. It says
something only where the processor has bfloat16.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paribus.engine.data import load_dataset
from paribus.engine.evaluation import evaluate_on
from paribus.engine.machine.environment import native_precision
from paribus.engine.model import build_model, load_parameters
from paribus.engine.training import Trainer
from paribus.study import Study, load_study

TRIAL_LIMIT_NATS, CONTRAST_LIMIT_NATS = 0.005, 0.002
PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.baddbmm.default,
}


class RoundedProducts(TorchDispatchMode):
    """Products of bfloat16 matrices taken in float32 and rounded once."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in PRODUCTS and args[-1].dtype == torch.bfloat16:
            self.seen += 1
            return func(*(a.float() for a in args), **(kwargs or {})).bfloat16()
        return func(*args, **(kwargs or {}))


def train(study: Study, arm: str, seed: int, precision: str, rounded: bool) -> float:
    """Validation loss in nats per token of one trial."""
    setting = study.setting(arm)
    training = setting.training.model_copy(update={"precision": precision})
    setting = setting.model_copy(update={"training": training})
    dataset = load_dataset(setting.data, study.folder)
    stack = Trainer(setting, [seed], dataset)
    emulate = rounded and precision == "bfloat16"
    with RoundedProducts() if emulate else contextlib.nullcontext() as products:
        for _ in range(setting.iterations):
            stack.step()
    if emulate:
        # Four linear maps a layer, each forward, and back for its input and for its weight.
        assert products.seen >= 3 * 4 * setting.model.n_layer * setting.iterations
    model = build_model(setting, dataset.vocab_size, study.folder)
    load_parameters(model, stack.parameters(0))
    seq_len = setting.data.seq_len
    return evaluate_on(model, dataset, dataset.validation, seq_len).scores["validation_loss"]


def compare(study: Study, rounded: bool) -> dict[str, Any]:
    """Train everything twice, and print what differs."""
    losses: dict[str, dict[tuple[str, int], float]] = {"float32": {}, "bfloat16": {}}
    for arm, seed in study.trials:
        began = time.monotonic()
        for precision, found in losses.items():
            found[arm, seed] = train(study, arm, seed, precision, rounded)
        full, mixed = (found[arm, seed] for found in losses.values())
        print(
            f"{arm + f' seed {seed}':24} {full:.5f} {mixed:.5f} {mixed - full:+.5f}"
            f"  ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    full, mixed = losses.values()
    rows = {
        f"trials of {arm}": [mixed[arm, s] - full[arm, s] for s in study.seeds]
        for arm in study.arms
    }
    contrasts = {
        f"{arm} - {reference}": [
            [one[arm, s] - one[reference, s] for s in study.seeds] for one in (full, mixed)
        ]
        for arm, reference in study.contrasts
    }
    print(f"\n{'bfloat16 - float32, nats/token':34} {'mean':>9} {'largest':>9} {'limit':>7}")
    for name, values in rows.items():
        report(name, values, TRIAL_LIMIT_NATS)
    for name, (plain, other) in contrasts.items():
        report(name, [b - a for a, b in zip(plain, other, strict=True)], CONTRAST_LIMIT_NATS)
        if len(plain) > 1:
            print(
                f"    in float32 {statistics.mean(plain):+.5f}, "
                f"SD over seeds {statistics.stdev(plain):.5f}"
            )
    return {
        p: {f"{arm}/seed-{s}": loss for (arm, s), loss in found.items()}
        for p, found in losses.items()
    }


def report(name: str, values: list[float], limit: float) -> None:
    mean, largest = statistics.mean(values), max(values, key=abs)
    verdict = "held" if abs(largest) <= limit else "mean held" if abs(mean) <= limit else "broken"
    print(f"{name:34} {mean:+9.5f} {largest:+9.5f} {limit:7.3f}  {verdict}")


def time_attention(rounds: int) -> None:
    """Milliseconds of one layer's attention at the flagship's shape, one thread, in turn."""
    B, H, T, K = 16, 8, 128, 16
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(B, H, T, K, generator=generator) for _ in range(3))
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    bias = torch.zeros(T, T).masked_fill(future, -math.inf)

    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def fused_in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fused(q.float(), k.float(), v.float())

    def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(K) + bias
        return scores.softmax(-1).to(v.dtype) @ v

    ways: dict[str, tuple[Callable[..., Tensor], torch.dtype]] = {
        "float32, fused": (fused, torch.float32),
        "bfloat16, fused": (fused, torch.bfloat16),
        "bfloat16, fused in float32 (paribus)": (fused_in_float32, torch.bfloat16),
        "bfloat16, written out": (written_out, torch.bfloat16),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds + 1):  # the first is a warm-up
        for name, (attend, dtype) in ways.items():
            leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
            began = time.perf_counter()
            y = attend(*leaves)
            middle = time.perf_counter()
            torch.autograd.grad(y.float().sum(), leaves)
            taken[name].append((middle - began, time.perf_counter() - middle))
    print(f"{'ms a layer, medians':38} {'forward':>8} {'back':>8}")
    for name, pairs in taken.items():
        forward, back = np.median(pairs[1:], axis=0) * 1e3
        print(f"{name:38} {forward:8.1f} {back:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--study", default="quickstart")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--seeds", type=int, help="the first so many of the study's")
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--rounds", type=int, default=20, help="of --attention")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    native = native_precision(torch.device("cpu")) == "bfloat16"
    how = "native" if native else "not native"
    print(f"{platform.platform()}, PyTorch {torch.__version__}, bfloat16 {how}")
    if arguments.attention:
        time_attention(arguments.rounds)
        return
    study = load_study(arguments.study)
    overrides: dict[str, Any] = {}
    if arguments.iterations:
        overrides["training.iterations"] = arguments.iterations
    if arguments.seeds:
        overrides["seeds"] = list(study.seeds[: arguments.seeds])
    study = load_study(arguments.study, overrides)
    print(f"{study.name}, {study.setting(study.baseline).iterations} iterations")
    print(json.dumps(compare(study, rounded=not native)))


if __name__ == "__main__":
    main()
