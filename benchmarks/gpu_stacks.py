"""Benchmark of stacked training on a GPU: many seeds in one program, against nanoGPT.

    python benchmarks/gpu_stacks.py [--nanogpt PATH] [--json FILE]

All probes are enabled. The benchmark measures:

1. Tokens per second against the number R of replicas trained together.
2. Seconds of training for 3 arms x 5 seeds x 300 iterations (the study `embedding-norm`).
3. The same with 100 seeds.
4. Seconds of 15 sequential nanoGPT trials, extrapolated from timed steps after compilation, with
   nanoGPT's default `torch.compile` and bfloat16 autocast. Evaluation and logging are excluded on
   both sides.

To test the script without a GPU: `--device cpu --iterations 2 --many 2 --stacks 1 2`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.machine.environment import choose_device, native_precision, prepare
from paribus.engine.machine.steps import build_stack, step_time
from paribus.engine.setting import with_precision
from paribus.study import Study, load_study

WANTED = "targets: 15 trials in 10 s, 300 trials in 60 s, at least 20 x nanoGPT"
WARM_UP_STEPS, NANOGPT_STEPS = 20, 200


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(
    study: Study, dataset: Dataset, n_seeds: int, iterations: int, device: torch.device
) -> float:
    """Train the arms one after another, each with `n_seeds` replicas; return the seconds."""
    seconds = 0.0
    for arm in study.arms:
        stack = build_stack(study, study.setting(arm), range(n_seeds), dataset, device)
        finish(device)
        began = time.perf_counter()
        for _ in range(iterations):
            stack.step()
        stack.state(0)  # fetches what was measured
        finish(device)
        seconds += time.perf_counter() - began
        del stack  # or its memory would still be there when the next is built
    return seconds


def nanogpt_seconds(
    path: Path, study: Study, dataset: Dataset, device: torch.device, compiled: bool
) -> float:
    """Return the seconds per nanoGPT training step with the study's model and batch size."""
    sys.path.insert(0, str(path))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    setting = study.setting(study.baseline)
    T, B = setting.data.seq_len, setting.training.batch_size
    config = GPTConfig(
        block_size=T,
        vocab_size=dataset.vocab_size,
        n_layer=setting.model.n_layer,
        n_head=setting.model.n_head,
        n_embd=setting.model.d_model,
        dropout=0.0,
        bias=True,
    )
    raw = GPT(config).to(device)
    optimizer = raw.configure_optimizers(0.1, 3e-4, (0.9, 0.95), device.type)
    model: Any = torch.compile(raw) if compiled else raw
    data = torch.from_numpy(dataset.train.astype("int64"))

    def step() -> None:
        ix = torch.randint(len(data) - T, (B,))
        x = torch.stack([data[i : i + T] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + T] for i in ix])
        if device.type == "cuda":
            x = x.pin_memory().to(device, non_blocking=True)
            y = y.pin_memory().to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            _, loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    warm_up, steps = (WARM_UP_STEPS, NANOGPT_STEPS) if device.type == "cuda" else (1, 2)
    for _ in range(warm_up):
        step()
    finish(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    finish(device)
    return (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, help="an unmodified nanoGPT checkout")
    parser.add_argument("--study", default="embedding-norm")
    parser.add_argument("--corpus", default="pydoc", help="default: no network needed")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--many", type=int, default=100, help="number of seeds in the large study")
    parser.add_argument("--stacks", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is available; use --device cpu to test the script")
    device = choose_device(arguments.device)

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as workers have it
    prepare(device)
    study = load_study(arguments.study, {"data.corpus": arguments.corpus})
    study = with_precision(study, native_precision(device))
    dataset = load_dataset(study.data, study.folder)
    iterations = arguments.iterations or study.setting(study.baseline).iterations
    n_arms, n_seeds = len(study.arms), len(study.seeds)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    print(f"{name}, PyTorch {torch.__version__}, {study.training.precision}, {study.name}")

    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "stacks": []}
    for R in arguments.stacks:
        step = step_time(study, study.baseline, dataset, device, R)
        speed = R * study.setting(study.baseline).tokens_per_step / step.seconds
        found["stacks"].append({"R": R, "tokens/s": speed})
        print(f"R = {R:4}  {speed:14,.0f} tokens/s")
    for seeds in (n_seeds, arguments.many):
        seconds = train(study, dataset, seeds, iterations, device)
        found[f"{n_arms * seeds} trials"] = seconds
        print(f"{n_arms * seeds} trials x {iterations} iterations: {seconds:.1f} s")
    if arguments.nanogpt:
        cuda = device.type == "cuda"
        step = nanogpt_seconds(arguments.nanogpt.resolve(), study, dataset, device, compiled=cuda)
        found["nanoGPT"] = seconds = step * iterations * n_arms * n_seeds
        ours = found[f"{n_arms * n_seeds} trials"]
        print(f"nanoGPT, {n_arms * n_seeds} trials in sequence: {seconds:.1f} s")
        print(f"paribus / nanoGPT: {seconds / ours:.1f} x")
    print(WANTED)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
