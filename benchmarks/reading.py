"""Benchmark of reading finished runs: time per GB and memory for each file format.

    python benchmarks/reading.py [MB]

For each format, files of MB megabytes in total (60 by default) are generated from random numbers
and read three times; the minimum is printed. The CPU time of the command `paribus judge` is then
measured for tables of ten and 1,000 runs.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paribus.readers import read
from paribus.study.runs import RunsSection

ROUNDS = 3
RNG = np.random.default_rng(0)


def table(home: Path, size: int) -> Iterator[Path]:
    """Generate one CSV file of 1 MB per run, with a curve in three columns."""
    for number in range(max(size // 10**6, 1)):
        losses = RNG.normal(3, 0.1, 45_000)
        rows = (f"{at},{loss:.6f},{0.1 / (1 + at):.6f}\n" for at, loss in enumerate(losses))
        path = home / f"seed_{number}.csv"
        path.write_text("step,loss,lr\n" + "".join(rows), encoding="utf-8")
        yield path


def long_table(home: Path, size: int) -> Iterator[Path]:
    """Generate one CSV file with ten runs and six columns."""
    path, n = home / "runs.csv", size // 400
    with path.open("w") as file:
        file.write("variant,seed,step,loss,lr,host\n")
        for run in range(10):
            rows = enumerate(RNG.normal(3, 0.1, n))
            name = f"{'new' if run % 2 else 'base'},{run // 2}"
            file.writelines(
                f"{name},{at},{loss:.6f},{0.1 / (1 + at):.6g},node-1\n" for at, loss in rows
            )
    yield path


def lines(home: Path, size: int, n_files: int = 1) -> Iterator[Path]:
    """Generate nanoGPT logs with a line of 50 bytes per step."""
    n = size // 50 // n_files
    for number in range(n_files):
        losses = RNG.normal(3, 0.1, n)
        path = home / f"seed_{number}.log"
        with path.open("w") as file:
            file.write("step 0: train loss 4.0000, val loss 4.0000\n")
            file.writelines(
                f"iter {at}: loss {loss:.4f}, time {1000 + loss:.2f}ms, mfu {loss:.2f}%\n"
                for at, loss in enumerate(losses)
            )
        yield path


def many_lines(home: Path, size: int) -> Iterator[Path]:
    """Generate 1,000 nanoGPT logs."""
    yield from lines(home, size, 1_000)


def trainer_state(home: Path, size: int) -> Iterator[Path]:
    """Generate one trainer_state.json of the Hugging Face Trainer (1.2 MB) per run."""
    for number in range(max(size // 1_200_000, 1)):
        history = [
            {
                "epoch": at / 1000,
                "grad_norm": float(abs(RNG.normal())),
                "learning_rate": 1e-4 / (1 + at),
                "loss": float(RNG.normal(3, 0.1)),
                "step": at * 10,
            }
            for at in range(7_500)
        ]
        path = home / f"seed_{number}" / "trainer_state.json"
        path.parent.mkdir()
        state = {"global_step": 75_000, "max_steps": 75_000, "log_history": history}
        path.write_text(json.dumps(state, indent=2))
        yield path


def events(home: Path, size: int) -> Iterator[Path]:
    """Generate one TensorBoard event file of 1 MB per run, with one scalar."""
    protos: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
    for number in range(max(size // 10**6, 1)):
        path = home / f"seed_{number}" / "events.out.tfevents.1.h"
        path.parent.mkdir()
        with path.open("wb") as file:
            for at in range(19_000):
                event = protos.Event(step=at, wall_time=1.7e9 + at)
                event.summary.value.add(tag="loss", simple_value=float(RNG.normal(3, 0.1)))
                record = event.SerializeToString()
                file.write(struct.pack("<QI", len(record), 0) + record + b"\0\0\0\0")
        yield path


def measured(make: Callable[[Path, int], Iterator[Path]], size: int) -> str:
    """Measure reading files in this process; return CPU time, wall time and memory as text."""
    is_long = make is long_table
    is_table = make in (table, long_table)
    section = RunsSection(arm="variant" if is_long else "arm", step="step" if is_table else "")
    with tempfile.TemporaryDirectory() as home:
        files = list(map(str, make(Path(home), size)))
        n = sum(map(os.path.getsize, files))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken, waited = [], []
        for _ in range(ROUNDS):
            began, used = time.perf_counter(), sum(os.times()[:4])  # with its child processes
            reading = read(files, section=section, scores=("loss",) if is_table else ())
            taken.append(sum(os.times()[:4]) - used)
            waited.append(time.perf_counter() - began)
            assert reading.runs and not reading.refused, reading.counts
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    a_gb = f"{min(taken) / n * 1e9:.1f} CPU s/GB, {min(waited) / n * 1e9:.1f} s/GB"
    return f"{n / 1e6:.0f} MB, {a_gb}, {(after - before) / 1024:.0f} MiB of memory"


def card(n_runs: int) -> float:
    """Return the CPU time in seconds of `paribus judge` on a table of `n_runs` runs."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "runs.csv")
        rows = (f"{'new' if at % 2 else 'base'},{3 + RNG.normal() / 100}\n" for at in range(n_runs))
        path.write_text("arm,loss\n" + "".join(rows), encoding="utf-8")
        words = ["judge", path, "--score", "loss", "--baseline", "base", "--margin", "0.01"]
        least = float("inf")
        for _ in range(ROUNDS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "paribus", *words], check=True, capture_output=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            least = min(least, used)
    return least


FORMS = {each.__name__: each for each in (table, long_table, lines, many_lines)}
FORMS |= {"trainer_state": trainer_state, "events": events}


def main() -> None:
    """Measure each format in a separate process, and print a line per format."""
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 60_000_000
    if len(sys.argv) > 2:
        print(f"{sys.argv[2]}: {measured(FORMS[sys.argv[2]], size)}")
        return
    for name in FORMS:
        subprocess.run([sys.executable, __file__, str(size / 1e6), name], check=True)
    for n_runs in (10, 1_000):
        print(f"judge, {n_runs:,} runs: {card(n_runs):.2f} CPU s")


if __name__ == "__main__":
    main()
