"""The scratch folder of a run by jobs, beside its results folder: `.<name>.jobs`.

.<name>.jobs/
  about.json      the backend, its options, and the token in the names of its jobs
  <n>/            one submission
    batch.json    its order: what each job does; written before it is submitted
    submitted     is there once it is
    closed        is there once nothing of it may begin any more: a job that starts then leaves
    <k>.revoked   is there once job k must not begin or report any more
    <k>.jsonl     what happened in job k, a line each
    <k>.end.json  how its last attempt ended
    scheduler/    the scheduler's own: logs, and what its library pickles; nobody else reads it

Nothing here counts: records are in the results folder, and this one goes when all jobs have left.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from paribus.errors import ParibusError
from paribus.files import add_line, write_bytes
from paribus.study.tuning_study import FOLDER as TUNING
from paribus.untrusted_io import RECORD_BYTES, is_regular, read_json

Kind = Literal["start", "work", "retrain", "time"]
NAME = re.compile(r"paribus-[0-9a-f]{12}-[1-9][0-9]{0,5}")
TAIL_BYTES = 4096


@dataclass(frozen=True)
class Order:
    """What the jobs of one submission do.

    Attributes:
        name: theirs, for the scheduler.
        kind: "work" is any tasks; the others are one job each.
        study, folder, sealed: the study, where its paths start, and whether it is the one that the
            results folder holds.
        results: the results folder.
        jobs: by job, its tasks as lines (`workers.messages`).
        settings: of `RunOptions`, and what a job's own workers need.
        software: versions that every machine must have.
    """

    name: str
    kind: Kind
    study: dict[str, Any]
    folder: str
    results: str
    jobs: list[list[str]]
    settings: dict[str, Any]
    software: dict[str, Any]
    cwd: str
    search: list[str] = field(default_factory=list)


_ORDER = TypeAdapter(Order)


@dataclass(frozen=True)
class Batch:
    """One submission."""

    path: Path

    @property
    def number(self) -> int:
        """Its place among the submissions of the study."""
        return int(self.path.name)

    @cached_property
    def order(self) -> Order:
        """Return what its jobs do. Raises ParibusError where the file is damaged."""
        path = self.path / "batch.json"
        try:
            found = _ORDER.validate_python(read_json(path))
        except ValidationError:
            found = None
        if found is None or not NAME.fullmatch(found.name):
            raise ParibusError(f"{path} was changed; remove {self.path.parent} and run again")
        return found

    @property
    def scheduler(self) -> Path:
        """Return the folder of the scheduler's own files."""
        return self.path / "scheduler"

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it may run any more."""
        return (self.path / "closed").exists()

    @property
    def is_submitted(self) -> bool:
        """Whether it is known that the scheduler has it."""
        return (self.path / "submitted").exists()

    def note_submitted(self) -> None:
        """Note that the scheduler has it."""
        write_bytes(self.path / "submitted", b"")

    def close(self) -> None:
        """From now on no job of it begins; one that runs may still write its checkpoints."""
        write_bytes(self.path / "closed", b"")

    def revoke_all(self) -> None:
        """Revoke every job of it."""
        for number in range(len(self.order.jobs)):
            self.revoke(number)

    def revoke(self, number: int) -> None:
        """Let a job neither begin nor report its end, because others have its tasks now."""
        write_bytes(self.path / f"{number}.revoked", b"")

    def is_revoked(self, number: int) -> bool:
        """Return whether others have the tasks of a job."""
        return (self.path / f"{number}.revoked").exists()

    def tell(self, number: int, about: dict[str, Any]) -> None:
        """Add a line to what happened in a job; whoever reads it opens it anew."""
        add_line(self.path / f"{number}.jsonl", json.dumps(about))

    def told(self, number: int, start: int) -> tuple[list[dict[str, Any]], int]:
        """Return the whole lines from that byte on, and where they end."""
        try:
            with (self.path / f"{number}.jsonl").open("rb") as file:
                file.seek(start)
                content = file.read(RECORD_BYTES)
        except OSError:
            return [], start
        whole = content[: content.rfind(b"\n") + 1]
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):  # half a line, of an attempt that was killed
                found.append(json.loads(line))
        return [one for one in found if isinstance(one, dict)], start + len(whole)

    def end(self, number: int, how: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Write how an attempt ended, or return how the last one did; None of one under way."""
        path = self.path / f"{number}.end.json"
        if how is not None:
            write_bytes(path, json.dumps(how).encode())
            return how
        return read_json(path) if is_regular(path) else None

    def begin(self, number: int) -> None:
        """Forget how an earlier attempt ended."""
        (self.path / f"{number}.end.json").unlink(missing_ok=True)


@dataclass(frozen=True)
class JobsFolder:
    """The scratch folder of a run."""

    path: Path

    @classmethod
    def of(cls, results: Path) -> JobsFolder:
        """Return that of a results folder, or of the one that a round of tuning is in."""
        top = results.absolute()
        if top.parent.name == TUNING and top.name.isdecimal():
            top = top.parent.parent
        return cls(top.parent / f".{top.name}.jobs")

    def about(self) -> dict[str, Any] | None:
        """Return what about.json says, if it is there. Raises ParibusError where it was changed."""
        path = self.path / "about.json"
        if not is_regular(path):
            return None
        found = read_json(path)
        is_ours = isinstance(found, dict) and re.fullmatch("[0-9a-f]{12}", str(found.get("token")))
        if not is_ours or not isinstance(found.get("options"), dict):
            raise ParibusError(f"{path} was changed; remove {self.path} once no job of it runs")
        return found

    def open(self, kind: str, options: dict[str, Any]) -> str:
        """Make it where it is not there; returns the token in the names of its jobs."""
        if (there := self.about()) is not None:
            about = there | {"kind": kind, "options": options}
        else:
            about = {"token": secrets.token_hex(6), "kind": kind, "options": options}
        if about != there:
            write_bytes(self.path / "about.json", json.dumps(about, indent=1).encode())
        return about["token"]

    def batches(self) -> list[Batch]:
        """Return every submission, in their order."""
        numbers = sorted(
            int(path.name)
            for path in (self.path.iterdir() if self.path.is_dir() else ())
            if path.name.isdecimal() and is_regular(path / "batch.json")
        )
        return [Batch(self.path / str(number)) for number in numbers]

    def live(self) -> list[Batch]:
        """Return those of which something may run."""
        return [batch for batch in self.batches() if not batch.is_closed]

    def new(self, order: Order, token: str) -> Batch:
        """Write down a submission that comes next; `order` is named here."""
        number = max((batch.number for batch in self.batches()), default=0) + 1
        batch = Batch(self.path / str(number))
        named = asdict(order) | {"name": f"paribus-{token}-{number}"}
        batch.scheduler.mkdir(parents=True, exist_ok=True)
        write_bytes(batch.path / "batch.json", json.dumps(named).encode())
        return batch

    def remove(self) -> None:
        """Remove it; every job has left."""
        shutil.rmtree(self.path, ignore_errors=True)


def tail(path: Path | None) -> Iterator[str]:
    """Yield the last lines of a log, the last one first; none where there is no log."""
    try:
        with open(path or "", "rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    yield from (line.strip() for line in reversed(lines) if line.strip())
