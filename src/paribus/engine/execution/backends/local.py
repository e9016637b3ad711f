"""`local`: processes of this machine, joined by pipes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence

from paribus.engine.execution.backends.protocol import Backend, End, Hear, Retrying, backend
from paribus.engine.execution.workers import processes
from paribus.engine.execution.workers.processes import Fork, start_program

# A worker, wherever it runs. -P: the current folder may be somebody else's; it is searched only
# where ours has it.
WORKER = (sys.executable, "-P", "-m", "paribus.engine.execution.workers")
Begin = Callable[[Sequence[str], Sequence[int]], "Fork | subprocess.Popen[bytes]"]
LEAVE_SECONDS = 30  # a worker that was asked to stop finishes its step and writes a checkpoint


class PipedProcess:
    """A process, and the thread that listens to it.

    `command` is a worker itself, or a program that joins its own standard input and output to a
    worker's and passes its environment on, as `srun` does. `begin` starts it.
    """

    def __init__(
        self,
        command: Sequence[str],
        hear: Hear,
        *,
        leave_seconds: float = LEAVE_SECONDS,
        begin: Begin = start_program,
    ) -> None:
        self._leave_seconds = leave_seconds
        # Its own words (warnings, a crash of the interpreter) are kept for the case of a failure.
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        (read, ours), (said, told) = os.pipe(), os.pipe()
        self._stdin = open(ours, "w", encoding="utf-8")  # noqa: SIM115
        self._stdout = open(said, encoding="utf-8")  # noqa: SIM115
        try:
            self.process = begin(command, (read, told, self._stderr.fileno()))
        except BaseException:
            for file in (self._stdin, self._stdout, self._stderr):
                file.close()
            raise
        finally:
            os.close(read)
            os.close(told)
        self._listener = threading.Thread(target=self._listen, args=(hear,), daemon=True)
        self._listener.start()

    def send(self, line: str) -> None:
        """Write a line to its standard input."""
        with contextlib.suppress(BrokenPipeError):  # if it has died, its end of output tells
            self._stdin.write(line)
            self._stdin.flush()

    def stop(self) -> None:
        """Close its standard input."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def close(self) -> None:
        """Wait until it has left; kill it if it does not."""
        try:
            self.process.wait(self._leave_seconds)
        except (subprocess.TimeoutExpired, TimeoutError):
            self.process.kill()
            self.process.wait()
        self._listener.join()
        self._stdout.close()
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
        try:
            for line in self._stdout:
                hear(line)
        finally:
            hear(None)


# A worker that dies with who started it; -P as for any worker.
COMMAND = (*processes.TEMPLATE, "worker")


@backend("local", options=Retrying)
class Local(Backend):
    """One process per core of a CPU, or per GPU."""

    def start(self, hear: Hear) -> PipedProcess:
        """Start a process, which dies with this one."""
        return self._start(hear, is_fresh=False)

    def start_fresh(self, hear: Hear) -> PipedProcess:
        """Start one, forked from another process than workers that are not fresh."""
        return self._start(hear, is_fresh=True)

    def start_bare(self, hear: Hear) -> PipedProcess:
        """Start a process that is no fork of one that has loaded the engine."""
        return PipedProcess(WORKER, hear)

    def _start(self, hear: Hear, *, is_fresh: bool) -> PipedProcess:
        if not processes.has_template():
            return PipedProcess((*COMMAND, str(os.getpid())), hear)
        started_by = processes.worker_template(is_fresh=is_fresh)
        return PipedProcess((), hear, begin=lambda _, files: started_by.fork(files))

    def default_workers(self, device: str, devices: int) -> int:
        """Return one per GPU; on a CPU, one per core that this process may use."""
        return devices if device != "cpu" else count_cores()


def count_cores() -> int:
    """Count the cores of this machine that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
