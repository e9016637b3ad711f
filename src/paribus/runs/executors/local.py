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
from paribus.runs.executors import Backend, backend
from paribus.runs.processes import ending, tail
from paribus.runs.queue import Queue
from paribus.search_path import shared_folders
from paribus.study.trainer import STACKED

# -P: the current folder may be a stranger's, and is searched only if this process does.
WORKER = (sys.executable, "-P", "-m", "paribus.runs.worker")
LEAVE_SECONDS = 90.0  # children finish their step and write checkpoints
# Variables that no worker reads, or that every order contains.
PASSING = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "NO_COLOR", "PARIBUS_LEDGER"}


class WorkerProcess(subprocess.Popen[bytes]):
    """A worker that serves one queue after another, and ends with this process."""

    def __init__(self, trainer: str) -> None:
        self.trainer, self.place, self.is_idle = trainer, _place(), True
        self.log = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the process
        # The worker imports what this process imports, installed or not.
        searched = os.pathsep.join(shared_folders())
        super().__init__(
            [*WORKER, "-", "--runner", trainer, "--parent", str(os.getpid())],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | {"PYTHONPATH": searched},
        )

    def begin(self, queue: Queue) -> None:
        """Let it work on a queue."""
        assert self.stdin is not None
        self.is_idle = False
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self.stdin.write(os.fsencode(f"{queue.path}\n"))

    def keep(self) -> None:
        """Keep it for the next run of this process, once it has left its queue."""
        assert self.stdout is not None
        if not self.is_idle:
            readable, _, _ = select.select([self.stdout], [], [], LEAVE_SECONDS)
            self.is_idle = bool(readable) and bool(self.stdout.readline())
        if not self.is_idle or _idle.setdefault((os.getpid(), self.trainer), self) is not self:
            self.end()

    def end(self) -> None:
        """End it by force; its children end with it."""
        self.kill()
        self.__exit__(None, None, None)
        self.log.close()


_idle: dict[tuple[int, str], WorkerProcess] = {}
"""Idle workers, keyed by the process that started them, which may have been forked, and trainer."""


def take_worker(trainer: str) -> WorkerProcess:
    """Return an idle worker of this trainer, or a new one."""
    worker = _idle.pop((os.getpid(), trainer), None)
    if worker is not None:
        if worker.place == _place() and worker.poll() is None:
            return worker
        worker.end()
    return WorkerProcess(trainer)


def warm_up(trainer: str = STACKED) -> None:
    """Let a worker import what it needs while this process reads a study and prepares its text."""
    take_worker(trainer).keep()


def _place() -> object:
    """Return what is equal for worker processes that can replace each other."""
    variables = {name: value for name, value in os.environ.items() if name not in PASSING}
    return variables, shared_folders()


@atexit.register
def _end_idle() -> None:
    """End the idle workers when this process ends."""
    for (owner, _), worker in _idle.items():
        if owner == os.getpid():
            worker.end()


@backend("local")
class Local(Backend):
    """One worker, with a child process per core of a CPU, or per GPU."""

    is_here = True

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> None:
        """Let a worker work on the queue."""
        self._queue, self._deaths = queue, 0
        self._worker = take_worker(queue.read_order().trainer)
        self._worker.begin(queue)

    def check(self) -> None:
        """Start another worker if it ended: that takes its tasks over, and names them.

        Raises ParibusError if that is too often.
        """
        code = self._worker.poll()
        if code is None or self._queue.is_over:
            return
        order = self._queue.read_order()
        self._deaths += 1
        if self._deaths > order.settings["retries"] + 1:
            last = "".join(f": {line}" for line in tail(Path(self._worker.log.name))[:1])
            raise ParibusError(
                f"the worker ended with {ending(code)}{last}; finished trials are kept: run again "
                "to continue",
                code="system",
            )
        self._worker.end()
        self._worker = WorkerProcess(order.trainer)
        self._worker.begin(self._queue)

    def leave(self, *, is_interrupted: bool) -> None:
        """Wait until the worker has left the queue; after Ctrl-C it ends."""
        if is_interrupted:
            self._worker.terminate()
        self._worker.keep()
