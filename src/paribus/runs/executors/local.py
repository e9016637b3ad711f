"""`local`: one worker process on this machine, which ends with the command."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from paribus.errors import ParibusError
from paribus.runs.executors import Backend, Retrying, backend
from paribus.runs.processes import ending, tail
from paribus.runs.queue import Queue
from paribus.search_path import shared_folders
from paribus.study.trainer import STACKED

# -P: the current folder may be a stranger's, and is searched only if this process does.
WORKER = (sys.executable, "-P", "-m", "paribus.runs.worker")
LEAVE_SECONDS = 90.0  # children finish their step and write checkpoints
# Variables that no worker reads, or that every order contains.
PASSING = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "NO_COLOR", "PARIBUS_LEDGER"}


@backend("local", options=Retrying)
class Local(Backend):
    """One worker, with a child process per core of a CPU, or per GPU."""

    is_here = True

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> LocalWorker:
        """Start a worker; it ends with this process."""
        return LocalWorker(queue)


class LocalWorker:
    """The worker of a run, seen from the command."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._trainer = queue.read_order().trainer
        self._deaths = 0
        self._process = take_process(self._trainer)
        self._process.begin(queue)

    def check(self) -> None:
        """Start again if the worker died or left. Raises ParibusError if that is too often."""
        code = self._process.process.poll()
        has_left = code is None and self._process.wait_until_idle(0)  # it was sent SIGTERM
        if (code is None and not has_left) or self._queue.is_over:
            return
        held = [
            task.doing for name in self._queue.claims() if (task := self._queue.read_task(name))
        ]
        self._deaths += 1
        retries = int(self._queue.read_order().settings.get("retries", 2))
        how = "left, as it was asked to," if code is None else f"died with {ending(code)}"
        words = f"the worker {how} {', '.join(held) or 'between two trials'}"
        for name in self._queue.claims():
            self._queue.release(name)
        if self._deaths > retries:
            last = "".join(f": {line}" for line in tail(self._process.errors)[:1])
            raise ParibusError(f"{words}{last}; finished trials are kept: run again to continue")
        again = f"{words}; begun again ({self._deaths} of {retries})"
        self._queue.report("command", {"event": "warning", "words": again})
        if not has_left:
            self._process = take_process(self._trainer)
        self._process.begin(self._queue)

    def stop(self) -> None:
        """Let the worker write checkpoints and leave."""
        self._process.interrupt()

    def leave(self) -> None:
        """Keep the worker for the next run of this process, once it is idle."""
        if self._process.wait_until_idle(LEAVE_SECONDS):
            keep_process(self._process)
        else:
            self._process.kill()


class WorkerProcess:
    """A worker process that serves one queue after another."""

    def __init__(self, trainer: str) -> None:
        self.trainer, self.settings = trainer, _settings()
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the process
        self.errors = Path(self._log.name)
        self._is_idle = True
        # The worker imports what this process imports, installed or not.
        searched = os.pathsep.join(shared_folders())
        self.process = subprocess.Popen(
            [*WORKER, "-", "--runner", trainer, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": searched},
        )

    def begin(self, queue: Queue) -> None:
        """Let it work on a queue."""
        assert self.process.stdin is not None
        self._is_idle = False
        with contextlib.suppress(BrokenPipeError):  # its end is noticed by `check`
            self.process.stdin.write(os.fsencode(f"{queue.path}\n"))
            self.process.stdin.flush()

    def interrupt(self) -> None:
        """Ask it to leave its queue."""
        if not self._is_idle:
            self.process.terminate()

    def wait_until_idle(self, seconds: float) -> bool:
        """Return whether it has left its queue, within some seconds."""
        if self._is_idle:
            return self.process.poll() is None
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        self._is_idle = bool(readable) and bool(self.process.stdout.readline())
        return self._is_idle

    def kill(self) -> None:
        """End it by force; its children end with it."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self._log):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


_idle: dict[tuple[int, str], WorkerProcess] = {}
"""Idle workers, keyed by the process that started them, which may have been forked, and trainer."""


def take_process(trainer: str) -> WorkerProcess:
    """Return an idle worker process of this trainer, or a new one."""
    process = _idle.pop((os.getpid(), trainer), None)
    if process is not None:
        if process.settings == _settings() and process.process.poll() is None:
            return process
        process.kill()
    return WorkerProcess(trainer)


def keep_process(process: WorkerProcess) -> None:
    """Keep an idle worker process for the next run of this process."""
    if _idle.setdefault((os.getpid(), process.trainer), process) is not process:
        process.kill()


def warm_up(trainer: str = STACKED) -> None:
    """Let a worker import what it needs while this process reads a study and prepares its text."""
    keep_process(take_process(trainer))


def _settings() -> object:
    """Return what is equal for worker processes that can replace each other."""
    variables = {name: value for name, value in os.environ.items() if name not in PASSING}
    return variables, shared_folders()


@atexit.register
def _end_idle() -> None:
    """End the idle workers when this process ends."""
    for (owner, _), process in _idle.items():
        if owner == os.getpid():
            process.kill()
