"""File-based task queue of a run, shared by all workers.

<queue>/
  order.json             the study, its results folder, and the options of the run
  tasks/<id>.json        unfinished task
  claims/<id>            worker that runs the task; touched periodically meanwhile
  answers/<id>.json      result of a task, if there is one
  deaths/<id>            one byte for each worker that died while running the task
  failure.json           reason why the run failed; if it exists, workers claim no more tasks
  finished               marker of a finished run
  events/<worker>.jsonl  steps, losses and warnings reported by a worker
  logs/<worker>-<k>.log  output of the worker's child process k

Claims only avoid duplicate work. A trial is a function of (study, arm, seed) and is completed by an
atomic rename, so it is harmless if two workers train the same trial. The queue contains no results
of the study, and is removed when the run is finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.runs.processes import Leaving, has_died
from paribus.study.trainer import Trial
from paribus.untrusted_io import RECORD_BYTES, is_regular, read_json

T = TypeVar("T")
_adapter = cache(TypeAdapter)  # made when it is needed: it takes long
STALE_SECONDS = 120.0
"""Age in seconds at which an untouched claim counts as abandoned and may be taken over."""


@dataclass(frozen=True)
class Order:
    """Configuration of a run, which its workers read.

    Attributes:
        study: the study as a JSON-compatible dict.
        folder: folder against which paths in the study are resolved.
        results: results folder.
        settings: options of `run`, such as device, workers, stack, checkpoint_seconds, and retries.
        executor: name and options of the executor that starts workers.
        cwd: working directory of workers.
        search: folders with custom code.
        token: identifier of this run; workers with a different token exit.
        stages: whether workers continue with the next stage; if False, they only run queued tasks.
    """

    study: dict[str, Any]
    folder: str
    results: str
    settings: dict[str, Any]
    executor: dict[str, Any]
    cwd: str
    search: list[str] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_hex(6))
    stages: bool = True


@dataclass(frozen=True)
class Task:
    """Unit of work for one worker.

    Attributes:
        id: name of the task in the queue.
        kind: kind of work, such as "train".
        doing: end of the message "a worker died ...", such as "on baseline/seed-1".
        home: results folder of the study or of its tuning trials.
        arguments: arguments for this kind of work.
    """

    id: str
    kind: str
    doing: str
    home: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def trials(self) -> list[tuple[str, int]]:
        """(arm, seed) pairs that the task trains, or [] for other kinds of tasks."""
        return [(arm, seed) for arm, seed in self.arguments.get("trials", [])]


class Missing(Exception):  # noqa: N818 - no error: what has to be done first
    """Raised if the next stage needs the results of unfinished tasks."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(f"{len(tasks)} tasks")
        self.tasks = list(tasks)


@dataclass(frozen=True)
class Queue:
    """Task queue in a folder. Writes are ignored after the queue has been removed."""

    path: Path

    @classmethod
    def locate(cls, results: Path) -> Queue:
        """Return the queue of a results folder."""
        return cls(results.absolute() / ".run")

    @property
    def exists(self) -> bool:
        """True if the queue has been created and not yet removed."""
        return is_regular(self.path / "order.json")

    def open(self, order: Order) -> None:
        """Create the queue and store the order, after removing the queue of an earlier run."""
        self.remove()
        for name in ("claims", "deaths", "events", "logs"):
            (self.path / name).mkdir(parents=True)
        write_bytes(self.path / "order.json", json.dumps(asdict(order)).encode())

    def read_order(self) -> Order:
        """Read the configuration of the run, or raise ParibusError if it is missing or invalid."""
        return self._read("order.json", Order, read_json(self.path / "order.json"))

    def remove(self, *, is_failed: bool = False) -> None:
        """Remove the queue, so that workers stop; keep a failed trial's error for `status`."""
        failure = self.failure() if is_failed else None
        shutil.rmtree(self.path, ignore_errors=True)
        if failure and failure["trials"]:
            write_bytes(self.path / "failure.json", json.dumps(failure).encode())

    def _write(self, name: str, content: Any) -> None:
        if self.exists:
            write_bytes(self.path / name, json.dumps(content).encode())

    def _read(self, name: str, kind: type[T], content: Any) -> T:
        with contextlib.suppress(ValidationError):
            return _adapter(kind).validate_python(content)
        path = self.path / name
        raise ParibusError(f"{path} was changed; remove {self.path} and run again", code="changed")

    def _content(self, name: str) -> Any:
        """Read a JSON file of the queue, or return None if it does not exist."""
        try:
            return read_json(self.path / name)
        except ParibusError as error:
            if error.code == "missing":
                return None  # such as a task that another worker has just finished
            raise

    def _names(self, folder: str, suffix: str = "") -> list[str]:
        paths = (self.path / folder).glob(f"[!.]*{suffix}")  # of no folder if it was removed
        return sorted(path.name.removesuffix(suffix) for path in paths)

    # Tasks

    def put(self, tasks: Sequence[Task]) -> None:
        """Add tasks, which are run in the order of their ids."""
        for task in tasks:
            self._write(f"tasks/{task.id}.json", asdict(task))

    def names(self) -> list[str]:
        """Return the ids of the unfinished tasks in sorted order."""
        return self._names("tasks", ".json")

    def read_task(self, name: str) -> Task | None:
        """Read a task, or return None if it is finished."""
        file = f"tasks/{name}.json"
        task = self._content(file)
        return None if task is None else self._read(file, Task, task)

    def finish(self, task: Task) -> None:
        """Remove a finished task from the queue."""
        (self.path / "tasks" / f"{task.id}.json").unlink(missing_ok=True)

    def answer(self, name: str, answer: Any) -> None:
        """Store the result of a task, or a value that a later stage needs."""
        self._write(f"answers/{name}.json", [answer])

    def read_answer(self, name: str) -> Any:
        """Read the result of a task, or return None if it is not available yet."""
        [answer] = self._content(f"answers/{name}.json") or [None]
        return answer

    def ask(self, tasks: Sequence[Task]) -> list[Any]:
        """Return the results of tasks, or raise Missing if some are not available yet."""
        answers = [self.read_answer(task.id) for task in tasks]
        if missing := [t for t, answer in zip(tasks, answers, strict=True) if answer is None]:
            raise Missing(missing)
        return answers

    # Claims

    def claim(self, name: str, worker: str) -> bool:
        """Try to claim a task, and return whether this succeeded."""
        try:
            with open(self.path / "claims" / name, "x", encoding="utf-8") as file:
                owner = {"host": platform.node(), "pid": os.getpid(), "worker": worker}
                json.dump(owner, file)
        except (FileExistsError, FileNotFoundError):  # or the queue was removed
            return False
        return True

    def claims(self) -> dict[str, dict[str, Any]]:
        """Return the host, PID and worker of each claim, keyed by task id."""
        return {name: self._read_claim(name) for name in self._names("claims")}

    def _read_claim(self, name: str) -> dict[str, Any]:
        """Return the host, PID and worker of a claim, or {} if the task is not claimed."""
        with contextlib.suppress(ParibusError):
            return self._content(f"claims/{name}") or {}
        return {}

    def touch(self, name: str, worker: str) -> None:
        """Mark a claim as active, unless another worker has taken it over."""
        if self._read_claim(name).get("worker") == worker:
            with contextlib.suppress(OSError):
                os.utime(self.path / "claims" / name)

    def abandoned(self, name: str, worker: str, stale: float) -> str:
        """Return how the process that claimed a task failed, or "" if it seems to be alive.

        The result is "died" if the process has died on this host, or "did not answer" if it has not
        touched its claim for `stale` seconds, by the clock of the file system.
        """
        owner = self._read_claim(name)
        if has_died(owner.get("pid", 0), owner.get("host", "")):
            return "died"
        claims = self.path / "claims"
        with contextlib.suppress(FileNotFoundError):
            clock = claims / f".{worker}"
            clock.touch()
            if clock.stat().st_mtime - (claims / name).stat().st_mtime > stale:
                return "did not answer"
        return ""

    def release(self, name: str, worker: str = "") -> bool:
        """Remove the claim on a task, and return whether there was one.

        If `worker` is given, only a claim of this worker is removed.
        """
        if worker and self._read_claim(name).get("worker") != worker:
            return False
        with contextlib.suppress(FileNotFoundError):
            (self.path / "claims" / name).unlink()  # only one of those who see it succeeds
            return True
        return False

    def release_dead(self, name: str, worker: str = "") -> int:
        """Release the claim of a dead worker, and return how many workers died on the task.

        Returns 0 if another worker has already released the claim.
        """
        if not self.release(name, worker):
            return 0
        try:
            with open(self.path / "deaths" / name, "ab") as file:
                file.write(b".")
                return file.tell()
        except FileNotFoundError:  # the queue was removed
            return 0

    # The end

    def fail(self, message: str, *, trace: str = "", trials: Sequence[Trial] = ()) -> None:
        """Record why the run failed, and in which trials, unless it has already failed."""
        if self.failure() is None:
            record = {"message": message, "trace": trace, "trials": list(trials)}
            self._write("failure.json", record)

    def failure(self) -> dict[str, Any] | None:
        """Return the failure (message, trace, trials), or None if the run has not failed."""
        return self._content("failure.json")

    def note_finished(self) -> None:
        """Mark the run as finished."""
        self._write("finished", True)

    @property
    def is_finished(self) -> bool:
        """Whether all stages of the run are finished."""
        return is_regular(self.path / "finished")

    @property
    def is_over(self) -> bool:
        """Whether the run has finished or failed, or the queue has been removed."""
        return self.is_finished or not self.exists or self.failure() is not None

    # Events

    def report(self, worker: str, event: Mapping[str, Any]) -> None:
        """Append an event to the worker's event file."""
        line = json.dumps({"at": time.time()} | dict(event)).encode() + b"\n"
        path = self.path / "events" / f"{worker}.jsonl"
        with contextlib.suppress(FileNotFoundError), path.open("ab", buffering=0) as file:
            file.write(line)  # one write, so that lines do not mix

    def events(self, read: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Yield the events since the last call.

        Args:
            read: number of bytes already read, keyed by worker; updated in place.
        """
        for worker in self._names("events", ".jsonl"):
            try:
                with open(self.path / "events" / f"{worker}.jsonl", "rb") as file:
                    file.seek(read.get(worker, 0))
                    content = file.read(RECORD_BYTES)
            except OSError:
                continue
            lines = content[: content.rfind(b"\n") + 1]
            read[worker] = read.get(worker, 0) + len(lines)
            for line in lines.splitlines():
                with contextlib.suppress(ValueError):  # half a line, of a worker that was killed
                    yield json.loads(line)


@dataclass
class Context:
    """Context in which a worker's child process runs a task.

    Attributes:
        worker: name of the worker.
        slot: 0-based index of the child process within its worker, which selects the GPU.
        leaving: handler of stop requests.
    """

    queue: Queue
    order: Order
    worker: str
    slot: int
    leaving: Leaving = field(default_factory=Leaving)

    def report(self, event: str, **content: Any) -> None:
        """Report an event, such as the progress of a trial."""
        self.queue.report(self.worker, {"event": event} | content)

    def say(self, words: str) -> None:
        """Report a message to be printed by the command that monitors the run."""
        self.report("say", words=words)
