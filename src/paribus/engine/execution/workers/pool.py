"""The workers of a study, seen from the one who starts them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Queue
from typing import Any, Self, TypeVar

from paribus.engine import INSTALL, has_engine
from paribus.engine.execution.backends import (
    Backend,
    WorkerProcess,
    called,
    find_backend,
)
from paribus.engine.execution.workers.messages import (
    Adopt,
    Answer,
    ArmTask,
    Declare,
    Failed,
    Finished,
    Hello,
    Ready,
    Refused,
    Rest,
    Task,
    Train,
    decode,
    encode,
)
from paribus.engine.execution.workers.processes import Device
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.metric import Metric, from_records
from paribus.study import Study, require_trust

Asked = TypeVar("Asked", bound=ArmTask[Any])


@dataclass(eq=False)
class Worker:
    """One worker.

    Attributes:
        number: which of several GPUs it takes.
        code: what custom code it has loaded (see `code_of`); from then on it serves these alone.
        process: what its backend has started.
    """

    number: int
    code: str = ""
    process: WorkerProcess = field(init=False)

    def send(self, message: object) -> None:
        """Send a message of `paribus.engine.execution.workers.messages`."""
        self.process.send(encode(message))

    @property
    def left(self) -> bool:
        """Whether it left by itself, as it was asked to: whoever asked wants no other one."""
        return self.process.end().how == "exit code 0"

    def died(self, doing: str) -> ParibusError:
        """Return what to tell the user of one that left in the middle of something."""
        end = self.process.end()
        last = f": {end.last_words}" if end.last_words else ""
        return ParibusError(
            f"a worker died with {end.how} {doing}{last}; finished trials are kept: run again to "
            "continue"
        )


Arrival = tuple[Worker, Any]  # a worker and its message; None says that it has left


class Pool:
    """Workers for one study. As a context manager it leaves no worker behind, whatever happens.

    A task whose worker dies is given to another one, `retries` times; by default as often as the
    backend says.
    """

    def __init__(
        self,
        study: Study,
        results: Path,
        *,
        device: Device,
        checkpoint_seconds: float = 0,
        eager: bool = False,
        backend: str | Backend = "local",
        retries: int | None = None,
    ) -> None:
        require_trust(study)  # all code of a study runs in workers
        if not has_engine():
            raise ParibusError(
                f"workers train and evaluate models, and the engine is not installed; {INSTALL}"
            )
        self.device = device
        self.study = study
        self.backend = find_backend(backend)
        self.retries = self.backend.retries if retries is None else retries
        self.workers: list[Worker] = []
        self.at_once = 0  # so many work at the same time; others are idle
        self._gone: list[Worker] = []
        self._inbox: Queue[tuple[Worker, str | None]] = Queue()
        self._unread: deque[Arrival] = deque()
        self._hello = Hello(
            study.model_dump(mode="json"),
            str(study.folder),
            str(results),
            device,
            number=0,
            checkpoint_seconds=checkpoint_seconds,
            eager=eager,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # Each of them, even where one fails: a backend may be the user's code.
        with contextlib.ExitStack() as last:
            for worker in (*self.workers, *self._gone):
                last.callback(worker.process.close)
            for worker in self.workers:
                last.callback(worker.process.stop)

    def start(self, number: int | None = None, *, is_fresh: bool = False) -> Worker:
        """One more worker; its first message will be `Ready`.

        `number` says which GPU it takes, in the place of an idle one; without it one more works at
        the same time. `is_fresh` is for its backend.
        """
        if number is None:
            number, self.at_once = self.at_once, self.at_once + 1
        worker = Worker(number)
        method = "start_fresh" if is_fresh else "start"
        hear = lambda line: self._inbox.put((worker, line))  # noqa: E731
        worker.process = called(self.backend, method, hear)
        self.workers.append(worker)  # from here on it is let go, whatever happens
        worker.send(replace(self._hello, number=number))
        return worker

    def start_for(self, n_tasks: int, workers: int | None = None) -> Ready:
        """Start `workers` for `n_tasks`, at least one and no more than there are tasks.

        Where `workers` is None the backend says how many. Returns what the first one found.
        """
        ready = self.ready(self.start())
        self.start_more(min(self.n_workers(workers, ready), n_tasks))
        return ready

    def n_workers(self, wished: int | None, ready: Ready) -> int:
        """As many as `wished`, or as the backend starts by itself where that is None."""
        if wished:
            return wished
        most = called(self.backend, "default_workers", ready.device, ready.devices)
        # Of one model over several devices, a worker takes as many.
        return max(most // (self.study.resources.devices_per_trial or 1), 1)

    def start_more(self, n_workers: int) -> None:
        """Start workers until so many work at the same time."""
        while self.at_once < n_workers:
            self.start()

    def ready(self, worker: Worker) -> Ready:
        """Return what a worker that was started found, and all devices of the backend; waits for
        it.
        """
        found = self._await(worker, Ready, "at the start")
        of_all = called(self.backend, "devices", found.device, found.devices)
        return replace(found, devices=of_all)

    def worker_for(
        self, setting: Setting, busy: Collection[Worker] = (), *, is_fresh: bool = False
    ) -> Worker:
        """Return an idle worker that has loaded the custom code of `setting`, or none at all.

        One is started where there is none: an arm's own code never shares a process with an arm
        that does not declare it. GPUs that a busy worker has are left to it. Where `is_fresh` is
        asked for, no worker that has run own code is taken: those of the same code leave.
        """
        code, taken = code_of(setting), {worker.number for worker in busy}
        idle = [w for w in self.workers if w not in busy and w.number not in taken]
        if code and is_fresh:
            for worker in [w for w in idle if w.code == code]:
                self._retire(worker)
                idle.remove(worker)
        found = next((w for w in idle if w.code == code), None)
        found = found or next((w for w in idle if not w.code), None)
        if found is None:
            found = self.start(next(n for n in itertools.count() if n not in taken))
        found.code = code
        return found

    def ask(self, worker: Worker, task: Task[Answer], doing: str) -> Answer:
        """Return the answer of `worker` to a task; `doing` says what, should it die."""
        worker.send(task)
        return self._await(worker, task.answer, doing)

    def metrics(self, worker: Worker) -> dict[str, Metric]:
        """Return what the study compares, as its code declares it; `worker` is asked.

        Raises ParibusError for an endpoint that nothing declares, or that cannot be one.
        """
        found = self.ask(worker, Declare(), "while endpoints were looked up")
        return from_records(found.metrics, "endpoints")

    def work_on(self, study: Study) -> None:
        """Let every worker, present and future, work on `study` from its next task on."""
        self.study = study
        self._hello = replace(self._hello, study=study.model_dump(mode="json"))
        for worker in self.workers:
            worker.send(Adopt(self._hello.study))

    def ask_at_once(self, task: ArmTask[Answer], n_workers: int, doing: str) -> list[Answer]:
        """Return the answers of so many workers that are asked at the same time."""
        setting = self.study.setting(task.arm)
        asked: list[Worker] = []
        for _ in range(n_workers):
            asked.append(self.worker_for(setting, asked))
        for worker in asked:
            worker.send(task)
        return [self._await(worker, task.answer, doing) for worker in asked]

    def ask_fresh(self, tasks: Sequence[ArmTask[Answer]], doing: Sequence[str]) -> list[Answer]:
        """Return the answers of processes that have done nothing before, one for each task.

        `at_once` of them work at the same time, and each leaves after its answer. `doing` says of
        each task what its process was doing, should it end.
        """
        for worker in self.workers:
            worker.send(Rest())
        answers = []
        for first in range(0, len(tasks), self.at_once):
            together = slice(first, first + self.at_once)
            asked = [
                (self.start(number, is_fresh=True), task, words)
                for number, (task, words) in enumerate(
                    zip(tasks[together], doing[together], strict=True)
                )
            ]
            for worker, task, _ in asked:
                worker.send(task)
            for worker, task, words in asked:
                answers.append(self._await(worker, task.answer, words))
                self._retire(worker)
        return answers

    def work(
        self,
        tasks: Iterable[Asked],
        hear: Callable[[Asked, Any], None] = lambda task, message: None,
    ) -> None:
        """Do `tasks` in their order, `at_once` of them at the same time; then all are idle.

        Args:
            tasks: each of one arm, whose setting says which custom modules it needs, and so which
                worker may do it.
            hear: is given the task and each message on it; its answer before the next is given.

        What a task leaves in the results folder is begun again, from its checkpoint, where its
        worker dies. Raises ParibusError where that happens too often, and where a worker says that
        something is wrong.
        """
        waiting, busy = deque(tasks), dict[Worker, Asked]()
        deaths = Counter[str]()
        while waiting or busy:
            while waiting and len(busy) < self.at_once:
                task = waiting.popleft()
                # Own code could carry something from trial to trial in its process.
                is_fresh = isinstance(task, Train)
                worker = self.worker_for(self.study.setting(task.arm), busy, is_fresh=is_fresh)
                busy[worker] = task
                worker.send(task)
            worker, message = self._unread.popleft() if self._unread else self._arriving()
            if message is None:
                if worker in self.workers:
                    self._gone.append(worker)
                    self.workers.remove(worker)
                if worker in busy:
                    task = busy.pop(worker)
                    self._try_again(worker, task, deaths)
                    waiting.appendleft(task)
            elif not isinstance(message, Ready):
                hear(busy[worker], message)
                if isinstance(message, busy[worker].answer):
                    del busy[worker]

    def _try_again(self, worker: Worker, task: ArmTask[Any], deaths: Counter[str]) -> None:
        """Count a death in the middle of a task. Raises ParibusError where it was the last."""
        error, line = worker.died(task.doing), encode(task)
        deaths[line] += 1
        if task.answer is not Finished or worker.left or deaths[line] > self.retries:
            raise error
        logging.getLogger("paribus").warning(
            "%s; begun again (%d of %d)",
            *(str(error).partition(";")[0], deaths[line], self.retries),
        )

    def _retire(self, worker: Worker) -> None:
        """Let an idle worker leave, and wait for its last word."""
        worker.process.stop()
        self.workers.remove(worker)
        self._gone.append(worker)
        while (arrived := self._arriving()) != (worker, None):
            if arrived[0] is not worker:
                self._unread.append(arrived)

    def _await(self, worker: Worker, kind: type[Answer], doing: str) -> Answer:
        """Return the next `kind` that this worker sends; what others send stays unread."""
        while True:
            unread = next((one for one in self._unread if one[0] is worker), None)
            if unread is not None:
                self._unread.remove(unread)
            sender, message = unread or self._arriving()
            if message is None:
                raise sender.died(doing)
            if sender is not worker:
                self._unread.append((sender, message))
            elif isinstance(message, kind):
                return message

    def _arriving(self) -> Arrival:
        """Return what arrives next. Raises ParibusError where a worker says it is wrong."""
        sender, line = self._inbox.get()
        if line is None:
            return sender, None
        try:
            message = decode(line)
        except ValueError:
            # Half a line is of a worker that died while it wrote: its end follows.
            if not line.endswith("\n"):
                return self._arriving()
            raise ParibusError(
                f"backend '{self.backend.name}' heard what is no message of a worker: "
                f"{line!r:.80}; a worker's lines are given to `hear` as they are"
            ) from None
        if isinstance(message, Refused):
            raise ParibusError(message.words)
        if isinstance(message, Failed):
            error = ParibusError(
                f"a worker failed: {message.words}; finished trials are kept. This is a "
                "defect of paribus or of an own module; PARIBUS_TRACEBACK=1 shows where"
            )
            if os.environ.get("PARIBUS_TRACEBACK"):
                error.add_note(message.trace)
            raise error
        return sender, message


def code_of(setting: Setting) -> str:
    """Return the custom code of a setting, which tells processes apart; empty where it has none."""
    return " ".join(setting.own_parts)
