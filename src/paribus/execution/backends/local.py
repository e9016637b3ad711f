"""`local`: processes of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from paribus.execution.backends.declare_backend import Backend, Hear, backend
from paribus.execution.backends.piped_process import PipedProcess

# A worker that dies with who started it; -P as for any worker.
COMMAND = (sys.executable, "-P", "-m", "paribus.execution.launch")
# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@backend("local")
class Local(Backend):
    """One process per core of a CPU, or per GPU."""

    def start(self, hear: Hear) -> PipedProcess:
        """Start a process, which dies with this one."""
        return PipedProcess((*COMMAND, str(os.getpid())), hear)

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
