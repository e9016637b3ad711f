"""`local`: processes of this machine."""

from __future__ import annotations

import os
import sys

from paribus.engine.execution.backends.declare_backend import Backend, Hear, backend
from paribus.engine.execution.backends.piped_process import PipedProcess
from paribus.engine.machine import programs

# A worker that dies with who started it; -P as for any worker.
COMMAND = (sys.executable, "-P", "-m", "paribus.engine.execution.launch")


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
        if not programs.has_template():
            return PipedProcess((*COMMAND, str(os.getpid())), hear)
        started_by = programs.worker_template(is_fresh=is_fresh)
        return PipedProcess((), hear, begin=lambda _, files: started_by.fork(files))

    def default_workers(self, device: str, devices: int) -> int:
        """One per GPU; on a CPU, one per core that this process may use."""
        return devices if device != "cpu" else count_cores()

    def is_surely_cpu(self, device: str) -> bool:
        """Whether there is no sign of a GPU, found without PyTorch; False where that is unknown."""
        return programs.is_surely_cpu(device)


def count_cores() -> int:
    """Cores of this machine that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
