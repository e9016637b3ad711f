"""Worker process, which claims tasks from a queue and runs each one in a child process.

    python -P -m paribus.runs.worker FOLDER [--name NAME] [--token TOKEN] [--parent PID]

FOLDER is a results folder or a queue (`paribus.runs.queue`). A worker with a parent stops when the
parent dies. Any number of workers may share a queue, on all machines that can access the folder.
When no tasks are left, a worker determines the next stage (`paribus.runs.advance`), also in a child
process.

On Linux, the started process forks the worker and only monitors it. If the worker is killed, the
monitoring process kills the worker's remaining descendants.

The worker imports the modules that trials need and computes nothing itself. Children can therefore
be forked in milliseconds, and each is as clean as a new interpreter. The standard library's
forkserver would run `__main__` again, and could not import more modules later, as this worker does.
If a GPU may be used, children are new interpreters, because GPU drivers do not survive a fork.

On SIGTERM or SIGUSR2, which schedulers send before they terminate a job, children write checkpoints
and stop. The worker then releases their claims and exits.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import os
import platform
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess, SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.errors import ParibusError, print_any_character
from paribus.runs import processes
from paribus.runs.processes import IGNORED, STOPPING, TRACEBACK, Left
from paribus.runs.queue import STALE_SECONDS, Context, Order, Queue, Task
from paribus.study.custom_code import OWN_MODULE, add_own_folder

if TYPE_CHECKING:
    from paribus.runs.advance import Runner

POLL_SECONDS = 0.05
LOOK_SECONDS = 0.5  # between two looks at other workers' claims
BEATS = 8  # touches of a claim before it would count as abandoned
LEAVE_SECONDS = 60.0  # a child that was asked to leave finishes its step and writes a checkpoint
DONE, DIED, REFUSED, LEFT = 0, 1, 2, 4  # how a child ends
ADVANCE = "advance"


class Stop(BaseException):
    """Raised when a scheduler or the parent process asks the worker to stop."""


@dataclass
class Child:
    """Child process and its task."""

    task: Task
    slot: int
    process: ForkProcess | SpawnProcess
    log: Path


class Worker:
    """Worker that runs the tasks in a queue."""

    def __init__(
        self, queue: Queue, order: Order, name: str, runner: type[Runner], parent: int
    ) -> None:
        self.queue, self.order, self.name = queue, order, name
        self.runner, self.parent = runner, parent
        self.retries: int = order.settings["retries"]
        self.stale: float = order.settings.get("stale_seconds", STALE_SECONDS)
        self.slots = order.settings["workers"] or runner(Context(queue, order, name, 0)).slots()
        self.children: list[Child] = []
        self._forks = runner.forks()
        self._touched = self._looked = 0.0
        self._is_stopping = False
        self._helpers: set[int] = set()

    def work(self) -> None:
        """Run tasks until the run is finished or has failed."""
        while not self.queue.is_over:
            if self.parent and os.getppid() != self.parent:
                raise Stop
            while len(self.children) < self.slots and (task := self._claim()):
                self._start(task)
            self._wait()
        if self.queue.failure() is not None:
            self.leave()
        while self.children:
            self._wait()

    def leave(self) -> None:
        """Stop the children, which write checkpoints first, and release their tasks."""
        self._is_stopping = True
        for child in self.children:
            child.process.terminate()
        deadline = time.monotonic() + LEAVE_SECONDS
        for child in self.children:
            child.process.join(max(deadline - time.monotonic(), 0))
            child.process.kill()
        while self.children:
            self._wait()

    def _claim(self) -> Task | None:
        """Claim and return the next task, or return None if no task is available.

        If the queue is empty and all children are idle, the task is to determine the next stage.
        """
        names = self.queue.names()
        for name in names:
            if self.queue.claim(name, self.name):
                if (task := self.queue.read_task(name)) is not None:
                    return task
                self.queue.release(name, self.name)  # another worker has just finished it
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._take_over()
        is_idle = self.order.stages and not names and not self.children
        if not is_idle or not self.queue.claim(ADVANCE, self.name):
            return None
        if self.queue.names() or self.queue.is_over:
            self.queue.release(ADVANCE, self.name)  # another worker has decided meanwhile
            return None
        return Task(ADVANCE, ADVANCE, "while the next trials were prepared", "")

    def _take_over(self) -> None:
        """Release the claims of workers that have died or do not respond."""
        own = {child.task.id for child in self.children}
        for name, record in self.queue.claims().items():
            if name in own or not (end := self.queue.abandoned(name, self.name, self.stale)):
                continue
            task = self.queue.read_task(name)
            if task is None and name != ADVANCE:
                self.queue.release(name)  # of a task that was done
            else:
                how = f"a worker {end} on {record.get('host')}"
                self._count_death(name, "", how, task.doing if task else "")

    def _start(self, task: Task) -> None:
        slot = min(set(range(len(self.children) + 1)) - {child.slot for child in self.children})
        log = self.queue.path / "logs" / f"{self.name}-{slot}.log"
        context = Context(self.queue, self.order, self.name, slot)
        start: Any = multiprocessing.get_context("fork" if self._forks else "spawn")
        arguments = (self.runner, context, task, log, os.getpid())
        process = start.Process(target=be_child, args=arguments)
        process.start()
        self.children.append(Child(task, slot, process, log))
        if not self._forks and not self._helpers:  # multiprocessing has started its own
            self._helpers = processes.children() - {process.pid or 0}

    def _wait(self) -> None:
        """Wait up to POLL_SECONDS for a child to exit, and handle all exited children."""
        if self.children:
            connection.wait([child.process.sentinel for child in self.children], POLL_SECONDS)
        else:
            time.sleep(POLL_SECONDS)
        now = time.monotonic()
        if now - self._touched > self.stale / BEATS:
            self._touched = now
            for child in self.children:
                self.queue.touch(child.task.id, self.name)
        for child in [c for c in self.children if c.process.exitcode is not None]:
            self.children.remove(child)
            self._settle(child)

    def _settle(self, child: Child) -> None:
        """Finish or release the task of a child that has exited."""
        child.process.join()
        code, task = child.process.exitcode or 0, child.task
        siblings = {sibling.process.pid or 0 for sibling in self.children}
        processes.end_children(siblings | self._helpers)
        if code == DONE and task.kind != ADVANCE:
            self.queue.finish(task)
        if code in (DONE, REFUSED, LEFT) or self._is_stopping:
            self.queue.release(task.id, self.name)
            return
        how = f"a worker died with {processes.ending(code)}"
        if code == -signal.SIGKILL:
            how += " (out of memory? use fewer --workers)"
        last = "".join(f": {line}" for line in processes.tail(child.log)[:1])
        self._count_death(task.id, self.name, how, f"{task.doing}{last}")

    def _count_death(self, name: str, worker: str, how: str, doing: str) -> None:
        """Release the task of a dead worker, and fail the run after too many deaths."""
        n, words = self.queue.release_dead(name, worker), f"{how} {doing}".strip()
        if n > self.retries:
            self.queue.fail(f"{words}; run again to continue (finished trials are kept)")
        elif n:
            again = f"{words}; restarting the task (retry {n} of {self.retries})"
            self.queue.report(self.name, {"event": "warning", "words": again})


def be_child(runner: type[Runner], context: Context, task: Task, log: Path, parent: int) -> None:
    """Run a task in this child process, then exit."""
    processes.tie_to(parent)
    processes.adopt_orphans()
    gc.freeze()
    gc.enable()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    print_any_character()
    for number in (*IGNORED, *STOPPING):
        signal.signal(number, signal.SIG_IGN)
    code, leaving = DIED, context.leaving
    try:
        os.environ.update(context.order.settings["environment"])
        leaving.listen()
        logging.getLogger("paribus").handlers[:] = [Reporting(context)]
        for folder in context.order.search:
            add_own_folder(Path(folder))
        if task.kind == ADVANCE:
            runner(context).advance()
        elif (answer := runner(context).execute(task)) is not None:
            context.queue.answer(task.id, answer)
        code = DONE
    except BaseException as error:
        # A library may have put its own words in the place of Left.
        if isinstance(error, Left) or leaving.asked:
            code = LEFT
        else:
            message, trace = _failure(task, error), traceback.format_exc()
            context.queue.fail(message, trace=trace, trials=task.trials)
            code = REFUSED
    finally:
        processes.leave(code)


def _failure(task: Task, error: BaseException) -> str:
    """Format the error of a failed task as a one-line message."""
    if isinstance(error, ParibusError):
        return str(error)
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    if not isinstance(error, Exception):  # such as SystemExit, raised by a user's code
        return (
            f"custom code exited the process {task.doing}: {words}; fix the code and run again "
            "(finished trials are kept)"
        )
    cause = "this is a bug in paribus"
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").startswith(OWN_MODULE):
            code = frame.f_code
            cause = f"raised in {Path(code.co_filename).name}:{line}, in {code.co_name}"
    hint = "" if os.environ.get(TRACEBACK) else f"; set {TRACEBACK}=1 to see the traceback"
    return f"a worker failed {task.doing}: {words}; {cause}{hint} (finished trials are kept)"


class Reporting(logging.Handler):
    """Logging handler that reports a child's warnings as events."""

    def __init__(self, context: Context) -> None:
        super().__init__(logging.WARNING)
        self._context = context

    def emit(self, record: logging.LogRecord) -> None:
        """Report a log record as a warning event, shown once per run for equal `once` values."""
        self._context.report("warning", words=record.getMessage(), once=getattr(record, "once", ""))


def main(arguments: list[str]) -> int:
    """Run a worker and return its exit code."""
    parser = argparse.ArgumentParser(prog="paribus.runs.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", default=f"{platform.node()}-{os.getpid()}")
    parser.add_argument("--token", default="")
    parser.add_argument("--parent", type=int, default=0)
    options = parser.parse_args(arguments)
    queue = Queue(options.folder)
    if not queue.exists:
        queue = Queue.locate(options.folder)
    if not queue.exists:
        print(
            f"{options.folder} contains no active run: the run has ended, or {platform.node()} "
            "cannot access the folder; in the second case, choose a shared folder with --results",
            file=sys.stderr,
        )
        return 1
    order = queue.read_order()
    if options.token and order.token != options.token:
        return 0  # of a run that is over
    if order.stages and queue.path.resolve() != Queue.locate(Path(order.results)).path.resolve():
        print(
            f"{options.folder} was moved or copied from {order.results}; run `paribus run` with "
            f"--results {options.folder}",
            file=sys.stderr,
        )
        return 2
    parent = options.parent
    if sys.platform == "linux":
        parent = os.getpid()
        if worker_pid := os.fork():
            return processes.guard(worker_pid, options.parent)
    from paribus.runs.trainer_runner import runner_of

    asked = []

    def stop(*_: object) -> None:
        asked.append(1)
        if len(asked) == 1:
            raise Stop

    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    worker = None
    try:
        for number in STOPPING:
            signal.signal(number, stop)
        # Looking for garbage takes a tenth of the time of imports, and would copy what children
        # share.
        gc.disable()
        processes.adopt_orphans()
        os.chdir(order.cwd)
        runner = runner_of(order.study["trainer"])
        with contextlib.suppress(Exception):  # a child reports a failing import
            runner.warm_up()
        worker = Worker(queue, order, options.name, runner, parent)
        queue.report(options.name, {"event": "begun"})
        worker.work()
    except Stop:
        if worker is not None:
            worker.leave()
    except ParibusError as error:
        queue.fail(str(error))
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    processes.leave(main(sys.argv[1:]))
