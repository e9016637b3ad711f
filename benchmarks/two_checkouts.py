"""Benchmark of training speed in two checkouts of paribus.

    git worktree add /tmp/before COMMIT
    python benchmarks/two_checkouts.py --before /tmp/before/src [--rounds N] [--steps N]

One single-threaded process per checkout trains an arm. In each round, both run the same number of
steps, in alternating order. CPU time is measured, because other programs affect it less than wall
time. The output is the median over rounds of the ratio of tokens per second, current to previous.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, sys, time, torch
from paribus.engine.data import load_dataset
from paribus.engine.training import Trainer
from paribus.study import load_study

torch.set_num_threads(1)
overrides, seeds, steps = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
study = load_study("quickstart", {"training.iterations": 100_000} | overrides)
dataset = load_dataset(study.data, study.folder)
stack = Trainer(study.setting("layernorm"), range(1, seeds + 1), dataset)
for _ in range(3):
    stack.step()
print("ready", flush=True)
for line in sys.stdin:
    began = time.process_time()
    for _ in range(steps):
        stack.step()
    print(time.process_time() - began, flush=True)
"""
CASES = {  # overrides, replicas, compiled kernels
    "bfloat16": ('{"training.precision": "bfloat16"}', 1, "auto"),
    "float32": ('{"training.precision": "float32"}', 1, "auto"),
    "float32, PyTorch's kernels": ('{"training.precision": "float32"}', 1, "off"),
    "llama, bfloat16": ('{"training.precision": "bfloat16", "model.preset": "llama"}', 1, "auto"),
    "two replicas, float32": ('{"training.precision": "float32"}', 2, "auto"),
    "a small model, float32": (
        '{"training.precision": "float32", "model.n_layer": 2, "model.d_model": 32, '
        '"model.n_head": 2, "data.seq_len": 32}',
        1,
        "auto",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="src of the old checkout")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1] / "src"
    for name, case in CASES.items():
        children = [start(source, *case, given.steps) for source in (given.before, here)]
        ratios, seconds = [], []
        for number in range(given.rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {which: ask(children[which]) for which in order}
            ratios.append(found[0] / found[1])
            seconds.append(found[1] / given.steps)
        for child in children:
            child.communicate()
        low, high = min(ratios), max(ratios)
        print(
            f"{name:28} {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}); "
            f"{1e3 * statistics.median(seconds):.1f} ms a step",
            flush=True,
        )


def start(
    source: Path, overrides: str, seeds: int, kernels: str, steps: int
) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": "1",
        "PARIBUS_CPU_KERNELS": kernels,
    }
    command = [sys.executable, "-c", CHILD, overrides, str(seeds), str(steps)]
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def ask(child: subprocess.Popen[str]) -> float:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write("again\n")
    child.stdin.flush()
    return float(child.stdout.readline())


if __name__ == "__main__":
    main()
