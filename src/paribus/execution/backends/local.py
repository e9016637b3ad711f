"""`local`: processes of this machine, joined by pipes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from paribus.execution.backends.declare_backend import Backend, End, Hear, backend

# -P: the current folder may be somebody else's; it is searched only where ours has it.
COMMAND = (sys.executable, "-P", "-m", "paribus.execution.launch")
LEAVE_SECONDS = 30  # a worker that was asked to stop finishes its step and writes a checkpoint
# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@backend
class Local(Backend):
    """One process per core of a CPU, or per GPU."""

    name = "local"

    def start(self, hear: Hear) -> LocalProcess:
        """Start a process, which dies with this one."""
        return LocalProcess(hear)

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


class LocalProcess:
    """A process, and the thread that listens to it."""

    def __init__(self, hear: Hear) -> None:
        # Its own words (warnings, a crash of the interpreter) are kept for the case of a failure.
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*COMMAND, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            env=os.environ
            | {
                "OMP_NUM_THREADS": "1",
                # Needed for deterministic matrix products on CUDA.
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                # The worker imports what this process imports, installed or not.
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            },
        )
        self._listener = threading.Thread(target=self._listen, args=(hear,), daemon=True)
        self._listener.start()

    def send(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # if it has died, its end of output tells
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def stop(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        """Wait until it has left; kill it if it does not."""
        try:
            self.process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()

    def end(self) -> End:
        """Its signal or exit code, and the last line of its standard error."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        hint = " (out of memory? use fewer --workers)" if code == -9 else ""
        self._stderr.seek(0)
        words = [line.strip() for line in self._stderr if line.strip()]
        return End(how + hint, words[-1] if words else "")

    def _listen(self, hear: Hear) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                hear(line)
        finally:
            hear(None)
