"""Processes that analyse results as another processor would: with its BLAS and vector functions."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# As numpy calls them from 2.4 on, and before.
AVX512 = "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
AVX2 = "X86_V3 AVX2 FMA3"
# By name: the flags that /proc/cpuinfo must have, and what makes a process compute so. One has a
# thread and one two, and one does without what numpy and PyTorch have for wider registers.
MACHINES: dict[str, tuple[set[str], dict[str, str]]] = {
    "Haswell": ({"avx2", "fma"}, {"NPY_DISABLE_CPU_FEATURES": AVX512, "OPENBLAS_NUM_THREADS": "1"}),
    "SkylakeX": ({"avx512f", "avx512dq", "avx512bw", "avx512vl"}, {"OPENBLAS_NUM_THREADS": "2"}),
    "Zen": (
        {"avx2", "fma"},
        {"NPY_DISABLE_CPU_FEATURES": f"{AVX512} {AVX2}", "OPENBLAS_NUM_THREADS": "1"},
    ),
}
SERVES = """
import json, sys, warnings
warnings.simplefilter("ignore")
from paribus.results import load_results
from paribus.verification.verify import derived
for line in sys.stdin:
    print(json.dumps(derived(load_results(line.strip()))), flush=True)
"""


def flags() -> set[str]:
    """Return what this processor can run; nothing where the system does not say."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


@dataclass(frozen=True)
class Processors:
    """By name, a process that answers a folder of results with what does not agree there."""

    running: dict[str, subprocess.Popen[str]]

    def ask(self, folder: Path) -> Callable[[], Iterator[tuple[str, Any]]]:
        """Ask all of them; returns what waits for their answers, by name."""
        for process in self.running.values():
            assert process.stdin is not None
            print(folder, file=process.stdin, flush=True)

        def answers() -> Iterator[tuple[str, Any]]:
            for name, process in self.running.items():
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, f"{name} ended"
                yield name, json.loads(line)

        return answers


@contextlib.contextmanager
def processors() -> Iterator[Processors]:
    """Start those that this machine can be."""
    there = flags()
    with contextlib.ExitStack() as stack:
        running = {}
        for name, (needed, environment) in MACHINES.items():
            if needed <= there:
                running[name] = stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", SERVES],
                        env=os.environ | environment | {"OPENBLAS_CORETYPE": name},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
        yield Processors(running)
