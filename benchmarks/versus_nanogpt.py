"""Benchmark of training throughput: paribus against an unmodified nanoGPT.

    python benchmarks/versus_nanogpt.py --nanogpt PATH

Both train a model with n_layer 8, n_head 8, d_model 128, context 128 and batch size 16, without
compilation, on the same tokens, with AdamW and gradient clipping, using all cores. All per-step
measurements of paribus are enabled. nanoGPT uses float32; paribus uses bfloat16 if the processor
supports it, or `--precision`. Rounds alternate, because absolute times drift. Ratios are those of
medians over rounds.

- nanoGPT: its model, optimizer and training loop, without logging and evaluation, with PyTorch's
  default number of threads.
- nanoGPT, one thread x cores: one single-threaded process per core, all training concurrently.
- paribus: one worker per core with one trial each, as in `paribus run`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

SHAPE = {"n_layer": 8, "n_head": 8, "d_model": 128, "seq_len": 128, "batch_size": 16}
FLAGSHIP = {
    "training.batch_size": SHAPE["batch_size"],
    "data.seq_len": SHAPE["seq_len"],
    **{f"model.{name}": SHAPE[name] for name in ("n_layer", "n_head", "d_model")},
}
WARM_UP_STEPS = 3
TOKENS_PER_STEP = SHAPE["batch_size"] * SHAPE["seq_len"]


def train_nanogpt(path: Path, threads: int, steps: int, start: object, seconds: object) -> None:
    """Run nanoGPT's training loop for `steps` steps, timed after a warm-up."""
    sys.path.insert(0, str(path))
    import numpy as np
    import torch

    from model import GPT, GPTConfig  # type: ignore[import-not-found]
    from paribus.engine.data import load_dataset
    from paribus.engine.setting import Data

    torch.set_num_threads(threads)
    torch.manual_seed(1337)
    dataset = load_dataset(Data(corpus="pydoc"), Path())
    T, B = SHAPE["seq_len"], SHAPE["batch_size"]
    config = GPTConfig(
        block_size=T,
        vocab_size=dataset.vocab_size,
        n_layer=SHAPE["n_layer"],
        n_head=SHAPE["n_head"],
        n_embd=SHAPE["d_model"],
        dropout=0.0,
        bias=True,
    )
    model = GPT(config)
    optimizer = model.configure_optimizers(0.1, 3e-4, (0.9, 0.95), "cpu")
    data = dataset.train

    def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
        ix = torch.randint(len(data) - T, (B,))
        x = torch.stack([torch.from_numpy(data[i : i + T].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + T].astype(np.int64)) for i in ix])
        return x, y

    def step() -> None:
        X, Y = get_batch()
        _, loss = model(X, Y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    _timed(step, steps, start, seconds)


def train_paribus(precision: str | None, steps: int, start: object, seconds: object) -> None:
    """Train one trial with all probes for `steps` steps, timed after a warm-up."""
    import torch

    from paribus.engine.data import load_dataset
    from paribus.engine.machine.environment import native_precision, prepare
    from paribus.engine.machine.steps import build_stack
    from paribus.engine.setting import with_precision
    from paribus.study import load_study

    device = torch.device("cpu")
    prepare(device)
    wanted = precision or native_precision(device)
    study = with_precision(load_study("quickstart", FLAGSHIP), wanted)
    dataset = load_dataset(study.data, study.folder)
    stack = build_stack(study, study.setting("layernorm"), (1,), dataset, device)
    _timed(stack.step, steps, start, seconds)


def _timed(step: Callable[[], None], steps: int, start: object, seconds: object) -> None:
    import resource

    for _ in range(WARM_UP_STEPS):
        step()
    start.wait()  # type: ignore[attr-defined]
    began = time.perf_counter()
    for _ in range(steps):
        step()
    elapsed = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds.put((elapsed, memory))  # type: ignore[attr-defined]


def tokens_per_second(target: Callable[..., None], n: int, steps: int, *arguments: object) -> tuple:
    """Run `target` in `n` processes; return tokens/s and the peak memory per process in bytes."""
    context = multiprocessing.get_context("spawn")
    start, seconds = context.Barrier(n), context.Queue()
    processes = [
        context.Process(target=target, args=(*arguments, steps, start, seconds)) for _ in range(n)
    ]
    for process in processes:
        process.start()
    measured = [seconds.get() for _ in processes]
    for process in processes:
        process.join()
    return (
        n * steps * TOKENS_PER_STEP / max(elapsed for elapsed, _ in measured),
        max(memory for _, memory in measured),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="unmodified checkout")
    parser.add_argument("--steps", type=int, default=20, help="timed steps per process and round")
    parser.add_argument("--precision", choices=["bfloat16", "float32"], help="for paribus")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not (arguments.nanogpt / "model.py").is_file():
        parser.error(f"{arguments.nanogpt} has no model.py; pass a nanoGPT checkout")
    path, cores = arguments.nanogpt.resolve(), len(os.sched_getaffinity(0))
    contenders = {
        "nanoGPT": (train_nanogpt, 1, (path, cores)),
        "nanoGPT, one thread x cores": (train_nanogpt, cores, (path, 1)),
        "paribus": (train_paribus, cores, (arguments.precision,)),
    }
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    memory: dict[str, float] = {}
    for _ in range(arguments.rounds):
        for name, (target, n, first) in contenders.items():
            speed, memory[name] = tokens_per_second(target, n, arguments.steps, *first)
            speeds[name].append(speed)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"{platform.platform()}, {cores} cores; medians of {arguments.rounds} rounds")
    for name, value in medians.items():
        low, high = min(speeds[name]), max(speeds[name])
        print(
            f"{name:30} {value:9,.0f} tokens/s  ({low:,.0f} to {high:,.0f})"
            f"  {memory[name] / 2**20:6,.0f} MiB each"
        )
    ratios = {
        "paribus / nanoGPT": medians["paribus"] / medians["nanoGPT"],
        "paribus / nanoGPT, one thread x cores": medians["paribus"]
        / medians["nanoGPT, one thread x cores"],
    }
    for name, ratio in ratios.items():
        print(f"{name:40} {ratio:.2f}")
    print(json.dumps({"tokens_per_second": speeds, "ratios": ratios}))


if __name__ == "__main__":
    main()
