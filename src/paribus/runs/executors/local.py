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
        worker = take_worker(queue.read_order().trainer)
        worker.begin(queue)
        return worker


class LocalWorker:
    """A worker process of this command, which serves one queue after another."""

    def __init__(self, trainer: str) -> None:
        self.trainer, self.settings = trainer, _settings()
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the process
        self._start()

    def _start(self) -> None:
        self._is_idle = True
        # The worker imports what this process imports, installed or not.
        searched = os.pathsep.join(shared_folders())
        self.process = subprocess.Popen(
            [*WORKER, "-", "--runner", self.trainer, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": searched},
        )

    def begin(self, queue: Queue) -> None:
        """Let it work on a queue."""
        self._queue, self._deaths = queue, 0
        self._send()

    def _send(self) -> None:
        assert self.process.stdin is not None
        self._is_idle = False
        with contextlib.suppress(BrokenPipeError):  # its end is noticed by `check`
            self.process.stdin.write(os.fsencode(f"{self._queue.path}\n"))
            self.process.stdin.flush()

    def check(self) -> None:
        """Start again if the worker ended. Raises ParibusError if that is too often."""
        code, queue = self.process.poll(), self._queue
        if code is None or queue.is_over:
            return
        claims = queue.claims()
        tasks = [task.doing for name in claims if (task := queue.read_task(name))]
        for name in claims:
            queue.release(name)
        self._deaths += 1
        retries = int(queue.read_order().settings.get("retries", 2))
        words = f"the worker ended with {ending(code)} {', '.join(tasks) or 'between two trials'}"
        if self._deaths > retries:
            last = "".join(f": {line}" for line in tail(Path(self._log.name))[:1])
            raise ParibusError(
                f"{words}{last}; finished trials are kept: run again to continue", code="system"
            )
        again = f"{words}; begun again ({self._deaths} of {retries})"
        queue.report("command", {"event": "warning", "words": again})
        self._start()
        self._send()

    def stop(self) -> None:
        """Let the worker write checkpoints and leave its queue."""
        if not self._is_idle:
            self.process.terminate()

    def leave(self) -> None:
        """Keep the worker for the next run of this process, once it is idle."""
        if (
            not self._wait_until_idle(LEAVE_SECONDS)
            or _idle.setdefault((os.getpid(), self.trainer), self) is not self
        ):
            self.kill()

    def _wait_until_idle(self, seconds: float) -> bool:
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


_idle: dict[tuple[int, str], LocalWorker] = {}
"""Idle workers, keyed by the process that started them, which may have been forked, and trainer."""


def take_worker(trainer: str) -> LocalWorker:
    """Return an idle worker of this trainer, or a new one."""
    worker = _idle.pop((os.getpid(), trainer), None)
    if worker is not None:
        if worker.settings == _settings() and worker.process.poll() is None:
            return worker
        worker.kill()
    return LocalWorker(trainer)


def warm_up(trainer: str = STACKED) -> None:
    """Let a worker import what it needs while this process reads a study and prepares its text."""
    take_worker(trainer).leave()


def _settings() -> object:
    """Return what is equal for worker processes that can replace each other."""
    variables = {name: value for name, value in os.environ.items() if name not in PASSING}
    return variables, shared_folders()


@atexit.register
def _end_idle() -> None:
    """End the idle workers when this process ends."""
    for (owner, _), worker in _idle.items():
        if owner == os.getpid():
            worker.kill()
