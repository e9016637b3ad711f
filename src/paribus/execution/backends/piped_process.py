"""A process of this machine, joined by pipes: a worker, or a program that starts one elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence

from paribus.execution.backends.declare_backend import End, Hear

# A worker, wherever it runs. -P: the current folder may be somebody else's; it is searched only
# where ours has it.
WORKER = (sys.executable, "-P", "-m", "paribus.execution.worker")
LEAVE_SECONDS = 30  # a worker that was asked to stop finishes its step and writes a checkpoint


def worker_environment() -> dict[str, str]:
    """The environment variables that a worker needs beside those that are there."""
    return {
        "OMP_NUM_THREADS": "1",
        # Needed for deterministic matrix products on CUDA.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # The worker imports what this process imports, installed or not.
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }


class PipedProcess:
    """A process, and the thread that listens to it.

    `command` is a worker itself, or a program that joins its own standard input and output to a
    worker's and passes its environment on, as `srun` does.
    """

    def __init__(
        self, command: Sequence[str], hear: Hear, *, leave_seconds: float = LEAVE_SECONDS
    ) -> None:
        self._leave_seconds = leave_seconds
        # Its own words (warnings, a crash of the interpreter) are kept for the case of a failure.
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            env=os.environ | worker_environment(),
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
            self.process.wait(self._leave_seconds)
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
