"""The queue of a run: a folder of tasks, claims and answers that every worker sees.

<queue>/
  order.json             the study, where its results go, and the options of the run
  tasks/<id>.json        a task that is not done
  claims/<id>            who works on it; touched while it is worked on
  answers/<id>.json      what a task returned, if it returns anything
  deaths/<id>            one line for each worker that died while it worked on the task
  failure.json           why the run cannot go on; workers claim nothing more
  finished               nothing is left to do
  events/<worker>.jsonl  what a worker reports: steps, losses, warnings

Claims only save time. A trial is a function of (study, arm, seed) and is sealed by an atomic
rename, so two workers that train the same trial do no harm. Nothing in this folder counts as a
record, and it is removed when the run is finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from paribus.errors import ParibusError
from paribus.files import add_line, write_bytes
from paribus.results.lock import is_dead, process_record
from paribus.untrusted_io import RECORD_BYTES, is_regular, read_json

FOLDER = ".run"
STALE_SECONDS = 120.0
"""A claim that nobody has touched for this long is taken over."""


@dataclass(frozen=True)
class Order:
    """What the workers of one run need to know.

    Attributes:
        study: the study, as its model is dumped.
        folder: what paths of the study are relative to.
        results: the results folder.
        trainer: the name of the study's trainer.
        settings: options of `run`: device, workers, stack, checkpoint_seconds, eager, retries ...
        executor: the name of what starts the workers, and its options.
        software: versions that must be the same on every machine.
        cwd: the working folder of workers.
        search: folders of custom code.
        token: identifies this run; workers compare it with the one they were given.
        stages: whether workers decide what comes next; if not, they do the tasks that are there.
    """

    study: dict[str, Any]
    folder: str
    results: str
    trainer: str
    settings: dict[str, Any]
    executor: dict[str, Any]
    software: dict[str, Any]
    cwd: str
    search: list[str] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_hex(6))
    stages: bool = True


@dataclass(frozen=True)
class Task:
    """Something that one worker does.

    Attributes:
        id: its name in the queue.
        kind: what is done, such as "train".
        doing: the end of "a worker died ...": "on baseline/seed-1".
        home: the results folder that it is part of: the study's, or a round of its tuning.
        arguments: what the kind needs.
    """

    id: str
    kind: str
    doing: str
    home: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def trials(self) -> list[tuple[str, int]]:
        """The trials (arm, seed) that it trains; empty for other kinds."""
        return [(arm, seed) for arm, seed in self.arguments.get("trials", [])]


class Missing(Exception):  # noqa: N818 - no error: what has to be done first
    """Raised when the next stage needs tasks that are not done."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(f"{len(tasks)} tasks")
        self.tasks = list(tasks)


_ORDER, _TASK = TypeAdapter(Order), TypeAdapter(Task)


@dataclass(frozen=True)
class Queue:
    """The queue in a folder."""

    path: Path

    @classmethod
    def of(cls, results: Path) -> Queue:
        """Return the queue of a results folder."""
        return cls(results.absolute() / FOLDER)

    @property
    def exists(self) -> bool:
        """Whether a run has put an order here."""
        return is_regular(self.path / "order.json")

    def open(self, order: Order) -> None:
        """Write the order; everything that an earlier run left here is removed."""
        self.remove()
        write_bytes(self.path / "order.json", json.dumps(asdict(order)).encode())

    def read_order(self) -> Order:
        """Return the order. Raises ParibusError if it is missing or damaged."""
        path = self.path / "order.json"
        with contextlib.suppress(ValidationError):
            return _ORDER.validate_python(read_json(path))
        raise ParibusError(f"{path} was changed; remove {self.path} and run again")

    def remove(self) -> None:
        """Remove the queue. A worker that still runs finds nothing to claim."""
        import shutil

        shutil.rmtree(self.path, ignore_errors=True)

    # Tasks

    def put(self, tasks: Sequence[Task]) -> None:
        """Add tasks; their names keep their order."""
        for task in tasks:
            write_bytes(self.path / "tasks" / f"{task.id}.json", json.dumps(asdict(task)).encode())

    def names(self) -> list[str]:
        """Return the names of the tasks that are not done, in their order."""
        return [name.removesuffix(".json") for name in self._names("tasks")]

    def read_task(self, name: str) -> Task | None:
        """Return a task; None if it is done."""
        with contextlib.suppress(ParibusError, ValidationError, OSError):
            return _TASK.validate_python(read_json(self.path / "tasks" / f"{name}.json"))
        return None

    def finish(self, task: Task, answer: Any = None) -> None:
        """Write the answer of a task and remove the task."""
        if answer is not None:
            self.answer(task.id, answer)
        (self.path / "tasks" / f"{task.id}.json").unlink(missing_ok=True)

    def answer(self, name: str, answer: Any) -> None:
        """Keep an answer, or what a stage wants to remember."""
        if self.exists:
            write_bytes(self.path / "answers" / f"{name}.json", json.dumps([answer]).encode())

    def read_answer(self, name: str) -> Any:
        """Return an answer, or None if there is none."""
        path = self.path / "answers" / f"{name}.json"
        return read_json(path)[0] if is_regular(path) else None

    def ask(self, tasks: Sequence[Task]) -> list[Any]:
        """Return the answers of tasks. Raises Missing for those that are not answered."""
        answers = [self.read_answer(task.id) for task in tasks]
        if missing := [t for t, answer in zip(tasks, answers, strict=True) if answer is None]:
            raise Missing(missing)
        return answers

    # Claims

    def claim(self, name: str, worker: str) -> Claim | None:
        """Claim a task by its name; None if somebody else works on it."""
        path = self.path / "claims" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        own = process_record() | {"worker": worker, "token": secrets.token_hex(6)}
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(own, file)
        return Claim(path, own)

    def claims(self) -> dict[str, dict[str, Any]]:
        """Return who works on what: by name, the record of the claiming process."""
        return {
            name: record
            for name in self._names("claims", suffix="")
            if (record := _read_claim(self.path / "claims" / name))
        }

    def abandoned(self, name: str, worker: str, stale: float) -> bool:
        """Return whether a claim is of a dead process of this host, or was not touched for `stale`
        seconds by the clock of the file system."""
        path = self.path / "claims" / name
        record = _read_claim(path)
        if record is None:
            return False
        if is_dead(record):
            return True
        clock = self.path / "claims" / f".{worker}"
        try:
            clock.touch()
            return clock.stat().st_mtime - path.stat().st_mtime > stale
        except FileNotFoundError:
            return False

    def release(self, name: str, *, died: str = "") -> None:
        """Remove a claim; `died` says how its worker ended, if it did."""
        path = self.path / "claims" / name
        aside = path.with_name(f".{name}.{secrets.token_hex(4)}")
        try:
            path.rename(aside)  # only one of those who see it abandoned succeeds
        except FileNotFoundError:
            return
        aside.unlink(missing_ok=True)
        if died and self.exists:
            (self.path / "deaths").mkdir(exist_ok=True)
            add_line(self.path / "deaths" / name, died)

    def deaths(self, name: str) -> list[str]:
        """Return how workers died that had claimed a task, the first one first."""
        try:
            return (self.path / "deaths" / name).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    # The end

    def fail(self, message: str, *, trace: str = "") -> None:
        """Say why the run cannot go on. The first failure counts."""
        if self.exists and self.failure() is None:
            about = {"message": message, "trace": trace}
            write_bytes(self.path / "failure.json", json.dumps(about).encode())

    def failure(self) -> dict[str, str] | None:
        """Return why the run cannot go on; None if it can."""
        path = self.path / "failure.json"
        return read_json(path) if is_regular(path) else None

    def note_finished(self) -> None:
        """Say that nothing is left to do."""
        if self.exists:
            write_bytes(self.path / "finished", b"")

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return is_regular(self.path / "finished")

    @property
    def is_over(self) -> bool:
        """Whether workers claim nothing more."""
        return self.is_finished or not self.exists or self.failure() is not None

    # Events

    def report(self, worker: str, event: Mapping[str, Any]) -> None:
        """Add a line to what a worker reports."""
        folder = self.path / "events"
        with contextlib.suppress(FileNotFoundError):  # the run is over, and its queue removed
            if not folder.is_dir() and self.exists:
                folder.mkdir(exist_ok=True)
            line = json.dumps({"at": time.time()} | dict(event)) + "\n"
            handle = os.open(folder / f"{worker}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(handle, line.encode())  # one write, so that lines do not mix
            finally:
                os.close(handle)

    def events(self, read: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Yield events that came since the last call; `read` keeps how far each file was read."""
        for name in self._names("events", suffix=".jsonl"):
            try:
                with (self.path / "events" / name).open("rb") as file:
                    file.seek(read.get(name, 0))
                    content = file.read(RECORD_BYTES)
            except OSError:
                continue
            whole = content[: content.rfind(b"\n") + 1]
            read[name] = read.get(name, 0) + len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError):  # half a line, of a worker that was killed
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event | {"worker": name.removesuffix(".jsonl")}

    def _names(self, folder: str, suffix: str = ".json") -> list[str]:
        try:
            names = os.listdir(self.path / folder)
        except OSError:
            return []
        return sorted(name for name in names if name[0] != "." and name.endswith(suffix))


@dataclass(frozen=True)
class Claim:
    """A task that this process works on."""

    path: Path
    record: dict[str, Any]

    def touch(self) -> None:
        """Show that the task is still worked on. Nothing happens if it was taken over."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def release(self) -> None:
        """Give the task back, or remove the claim on a finished one."""
        record = _read_claim(self.path)
        if record is not None and record.get("token") == self.record["token"]:
            self.path.unlink(missing_ok=True)


def _read_claim(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def host() -> str:
    """Return the name of this machine."""
    return platform.node()
