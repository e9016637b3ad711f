"""Ledger of held-out texts: which studies evaluated on which texts, and when.

The ledger is a JSON Lines file, which several machines can share. Its path is `PARIBUS_LEDGER`, or
by default a file in the user's data folder.

A text is identified by digests, never by a path: the digest of the held-out split, and the digest
of its corpus with a byte range. This detects overlapping splits of the same corpus.
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
    """Held-out split of a text, identified by digests.

    Attributes:
        digest: SHA-256 of the split.
        corpus: SHA-256 of the corpus that contains the split, or "" if unknown.
        form: deduplication method applied to the corpus before splitting, which shifts positions;
            "" for none.
        start, stop: byte range in the corpus. If `stop` is None, the range extends to the end of
            the corpus; if `start` is None, the range is unknown.
    """

    model_config = DATA
    role: Literal["validation", "test"]
    digest: Digest
    corpus: Line = ""
    form: Line = ""
    start: NonNegativeInt | None = None
    stop: NonNegativeInt | None = None


class Event(BaseModel):
    """Ledger entry: the registration of a study, or the opening (first evaluation) of a text.

    Attributes:
        registration: SHA-256 of the study's first registration.json, which identifies the study.
        tests: number of primary tests in the study or, for an opening, on the text.
        study_digest, texts: digest and held-out texts of the study; only for registrations.
        text: the opened text, recorded before scores are computed; only for openings.
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
        """Deduplication key: the ledger contains at most one event per key."""
        text = (self.text.role, self.text.digest) if self.text else ()
        return self.registration, self.kind, *text

    @property
    def is_test(self) -> bool:
        """True if the event is the opening of a test split."""
        return self.text is not None and self.text.role == "test"

    @property
    def entry(self) -> dict[str, Any]:
        """Event as a dict for JSON, without default values."""
        return {"schema_version": 1} | self.model_dump(mode="json", exclude_defaults=True)


def overlap(a: TextPart, b: TextPart) -> bool:
    """Return whether two splits overlap, or may overlap.

    Deduplication shifts positions, so splits of differently deduplicated corpora always count as
    overlapping.
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
    """Return one opening per study that opened a text overlapping `parts`, sorted by time.

    Openings of the same study are merged to the earliest time, the largest number of tests, and a
    test split rather than a validation split. The study with registration digest `own` is excluded.
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
    """Return the ledger's path: $PARIBUS_LEDGER, or `ledger.jsonl` in the user's data folder.

    An empty variable disables the ledger; the result is then None.
    """
    stated = os.environ.get(VARIABLE)
    if stated is None:
        return data_folder() / "ledger.jsonl"
    return Path(stated) if stated else None


def events_in(path: Path) -> list[Event]:
    """Read the events of the ledger at `path`, in order. Raises ParibusError if it is damaged."""
    return _events(_lines(path), path)


@contextlib.contextmanager
def appending(path: Path) -> Iterator[tuple[list[Event], Callable[[Event], None]]]:
    """Lock a ledger, and yield its events and a function that durably appends an event."""
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
    """Read the complete lines of a ledger, ignoring a partial line left by a killed writer."""
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
    """Disable recording in the ledger within the `with` block."""
    token = IS_RECORDING.set(False)
    try:
        yield
    finally:
        IS_RECORDING.reset(token)
