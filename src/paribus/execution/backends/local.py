"""`local`: processes of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from paribus.execution.backends.declare_backend import Backend, Hear, backend
from paribus.execution.backends.piped_process import PipedProcess, start_program
from paribus.execution.forks import Running, template

# A worker that dies with who started it; -P as for any worker.
COMMAND = (sys.executable, "-P", "-m", "paribus.execution.launch")
TEMPLATE = (sys.executable, "-P", "-m", "paribus.execution.template")
FORKS = True  # workers are forks of a template where that is safe
# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@backend("local")
class Local(Backend):
    """One process per core of a CPU, or per GPU."""

    def start(self, hear: Hear) -> PipedProcess:
        """Start a process, which dies with this one."""
        return self._start(hear, is_fresh=False)

    def start_fresh(self, hear: Hear) -> PipedProcess:
        """The same, forked from another process than workers that are not fresh."""
        return self._start(hear, is_fresh=True)

    def _start(self, hear: Hear, *, is_fresh: bool) -> PipedProcess:
        if not FORKS or not self.is_surely_cpu("auto"):  # what a driver knows cannot be forked
            return PipedProcess((*COMMAND, str(os.getpid())), hear)
        forked_from = template(_start_template, is_fresh=is_fresh)
        return PipedProcess((), hear, begin=lambda _, files: forked_from.fork(files))

    def default_workers(self, device: str, devices: int) -> int:
        """One per GPU; on a CPU, one per core that this process may use."""
        return devices if device != "cpu" else count_cores()

    def is_surely_cpu(self, device: str) -> bool:
        """Whether there is no sign of a GPU, found without PyTorch; False where that is unknown."""
        if device != "auto":
            return device == "cpu"
        gpu = shutil.which("nvidia-smi") or any(Path(file).exists() for file in GPU_FILES)
        return sys.platform == "linux" and not gpu


def count_cores() -> int:
    """Cores of this machine that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _start_template(channel: int) -> Running:
    """A process that workers are forked from; their words are their own."""
    nowhere = subprocess.DEVNULL
    return start_program((*TEMPLATE, str(os.getpid())), (channel, nowhere, nowhere))
