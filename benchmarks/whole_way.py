"""Benchmark of a whole study, from the command to the report: wall time by phase.

    python benchmarks/whole_way.py [STUDY] [--workers N] [--set key=value ...]

The script runs `paribus run` in a temporary folder, and derives the phases from recorded times and
file modification times: start-up, training, held-out evaluation and tasks (including tuning
trials), speed measurement, and report. Each phase is printed in seconds of wall time and as a share
of the total. Phases that workers execute in parallel are summed and divided by the number of
workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIVE_MINUTES, TRAINING_SHARE, START_SECONDS = 300.0, 0.8, 4.0
TRIALS = "**/trials/*/*/"  # those of the tuning too


def run(study: str, workers: int, overrides: list[str], results: Path) -> tuple[float, float]:
    """Run a study; return the times at which the command started and ended, in seconds."""
    command = [sys.executable, "-m", "paribus", "run", study, "--workers", str(workers)]
    command += ["--results", str(results), *(word for one in overrides for word in ("--set", one))]
    began = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return began, time.time()


def parts(results: Path, workers: int, began: float, ended: float) -> dict[str, float]:
    """Return the wall time of each phase in seconds, in order; the sum is the total time."""

    def first(pattern: str) -> float:
        return min(path.stat().st_mtime for path in results.glob(pattern))

    def last(pattern: str) -> float:
        return max(path.stat().st_mtime for path in results.glob(pattern))

    timing = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in results.glob(TRIALS + "timing.json")
    ]
    shared = {
        part: sum(one[f"{part}_seconds"] for one in timing) / workers
        for part in ("training", "evaluation", "task")
    }
    started, trained = first(TRIALS + "initial.json"), last(TRIALS + "manifest.json")
    timed = last("throughput.parquet")
    return {
        "start-up, before the first step": started - began,
        "training": shared["training"],
        "held-out evaluation": shared["evaluation"],
        "tasks": shared["task"],
        "writing records, and idle workers": trained - started - sum(shared.values()),
        "speed measurement": timed - trained,
        "analysis, page and PDF": ended - timed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="?", default="quickstart")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--set", action="append", default=[], metavar="key=value")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        began, ended = run(arguments.study, arguments.workers, arguments.set, results)
        found = parts(results, arguments.workers, began, ended)
    whole = ended - began
    print(f"{arguments.study}, {arguments.workers} workers, {len(os.sched_getaffinity(0))} cores")
    for name, seconds in found.items():
        print(f"{name:46} {seconds:7.1f} s  {seconds / whole:5.1%}")
    print(f"{'total':46} {whole:7.1f} s")
    start, training = found["start-up, before the first step"], found["training"] / whole
    print(f"targets: at most {FIVE_MINUTES:.0f} s, training at least {TRAINING_SHARE:.0%} of it,")
    print(f"         first step within {START_SECONDS:.0f} s")
    print(json.dumps({"seconds": found, "whole": whole, "training": training, "start": start}))


if __name__ == "__main__":
    main()
