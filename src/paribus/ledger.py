"""The ledger: which texts were opened, when, and by which studies.

The ledger is a file of JSON lines for one machine or several. Its path is `PARIBUS_LEDGER`, or else
a file in the user's data folder.

A text is identified by digests, never by a path: the digest of the held-out part, and the digest of
its corpus with the range of bytes in it. Overlapping splits of the same corpus are thus detected.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.files import data_folder, errors_named
from paribus.metric import Line, Words
from paribus.untrusted_io import read_bytes

VARIABLE = "PARIBUS_LEDGER"
WAY_OUT = f"restore the ledger, or set {VARIABLE} to another file"
IS_RECORDING: ContextVar[bool] = ContextVar("is_recording", default=True)
DATA = ConfigDict(frozen=True, extra="allow", defer_build=True)
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class TextPart(BaseModel):
    """A held-out part of a text.

    Attributes:
        digest: SHA-256 of the part.
        corpus: SHA-256 of the corpus that the part was cut from, or "" if unknown.
        form: the deduplication that was applied to the corpus before it was cut, which shifts
            positions; "" for none.
        start, stop: range of bytes in the corpus. A stop of None is the end of the corpus; a start
            of None is unknown.
    """

    model_config = DATA
    role: Literal["validation", "test"]
    digest: Digest
    corpus: Line = ""
    form: Line = ""
    start: NonNegativeInt | None = None
    stop: NonNegativeInt | None = None


class Event(BaseModel):
    """An entry of the ledger.

    Attributes:
        registration: SHA-256 of the study's first registration.json, which identifies the study.
        tests: number of primary tests, of a registration or on the text of an opening.
        study_digest, texts: the study and its held-out texts; only in a registration.
        text: the text on which scores were about to be seen; only in an opening.
    """

    model_config = DATA
    schema_version: Literal[1] = 1
    kind: Literal["registration", "opening"]
    time: Words
    study: Words
    registration: Digest
    tests: NonNegativeInt = 0
    study_digest: Line = ""
    texts: tuple[TextPart, ...] = ()
    text: TextPart | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the event: the ledger records an event with the same key once."""
        text = (self.text.role, self.text.digest) if self.text else ()
        return self.registration, self.kind, *text

    @property
    def is_test(self) -> bool:
        """True if the event opened a test part."""
        return self.text is not None and self.text.role == "test"

    @property
    def entry(self) -> dict[str, Any]:
        """The event as a JSON object, without defaults."""
        return {"schema_version": 1} | self.model_dump(mode="json", exclude_defaults=True)


def overlap(a: TextPart, b: TextPart) -> bool:
    """Return whether two parts overlap, or may overlap.

    Deduplication shifts positions, so any parts of differently deduplicated corpora may overlap.
    """
    if a.digest == b.digest:
        return True
    if not a.corpus or a.corpus != b.corpus or a.start is None or b.start is None:
        return False
    if a.form != b.form:
        return True
    first, second = sorted((a, b), key=lambda part: part.start or 0)
    is_empty = a.start == a.stop or b.start == b.stop
    return not is_empty and (first.stop is None or (second.start or 0) < first.stop)


def uses(events: Iterable[Event], parts: Sequence[TextPart], own: str = "") -> list[Event]:
    """Return one opening for each study that opened a text overlapping `parts`, sorted by time.

    Several openings of one study are merged: the first time, the text of a test part if one was
    opened, and the largest number of tests. The study registered as `own` is excluded.
    """
    by_study: dict[str, Event] = {}
    for event in sorted(events, key=lambda event: event.time):
        text = event.text
        if text and event.registration != own and any(overlap(text, part) for part in parts):
            first = by_study.setdefault(event.registration, event)
            changes: dict[str, Any] = {"tests": max(first.tests, event.tests)}
            changes |= {"text": text} if text.role == "test" else {}
            by_study[event.registration] = first.model_copy(update=changes)
    return list(by_study.values())


def ledger_path() -> Path | None:
    """Return $PARIBUS_LEDGER, else `ledger.jsonl` in the user's data folder.

    Return None if the variable is empty, which turns the ledger off.
    """
    stated = os.environ.get(VARIABLE)
    if stated is None:
        return data_folder() / "ledger.jsonl"
    return Path(stated) if stated else None


def events_in(path: Path) -> list[Event]:
    """Return the events of the ledger at `path` in order. Raises ParibusError if it is damaged."""
    return _events(_lines(path), path)


@contextlib.contextmanager
def appending(path: Path) -> Iterator[tuple[list[Event], Callable[[Event], None]]]:
    """Lock a ledger; yield its events and a function that appends one and syncs it to disk."""
    with errors_named(path, way_out=WAY_OUT):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            content = _lines(path)
            events = _events(content, path)
            file.truncate(len(content))  # what a killed writer left

            def append(event: Event) -> None:
                line = json.dumps(event.entry, sort_keys=True, separators=(",", ":")) + "\n"
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())

            yield events, append


def _lines(path: Path) -> bytes:
    """Return the complete lines of a ledger, without a partial line that a killed writer left."""
    content = read_bytes(path) if os.path.lexists(path) else b""
    return content[: content.rfind(b"\n") + 1]


def _events(content: bytes, path: Path) -> list[Event]:
    events = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError as error:
            raise ParibusError(
                f"{path}, line {number}: {explain(error, Event)}; {WAY_OUT}", code="unreadable"
            ) from None
    return events


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Turn off recording in the ledger within the block."""
    token = IS_RECORDING.set(False)
    try:
        yield
    finally:
        IS_RECORDING.reset(token)
