"""The ledger: which texts were opened, when, and by which studies.

A file of JSON lines for a machine, or for a folder that several machines share: `PARIBUS_LEDGER`,
or else one in the user's data folder.

A text is identified by digest, never by a path: of the held-out part, and of the corpus that it was
cut from, with its place there in bytes. So a split at another place of the same corpus is known to
share bytes with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.files import data_folder
from paribus.json_lines import Entry, JsonLines
from paribus.metric import Line, Words

VARIABLE = "PARIBUS_LEDGER"
_is_on: ContextVar[bool] = ContextVar("is_on", default=True)
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Place = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Utc = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)


class TextPart(_Model):
    """A held-out part of a text.

    Attributes:
        digest: SHA-256 of the part.
        corpus: SHA-256 of the text that it was cut from; empty if unknown.
        form: the deduplication of the corpus before it was cut, which moves places; empty for none.
        start, stop: its place in the corpus, in bytes. A stop of None is the end of the corpus; a
            start of None is unknown.
    """

    role: Literal["validation", "test"]
    digest: Digest
    corpus: Literal[""] | Digest = ""
    form: Line = ""
    start: Place | None = None
    stop: Place | None = None


class Event(_Model):
    """An entry of the ledger.

    Attributes:
        registration: SHA-256 of the study's first registration.json, which identifies the study.
        tests: primary tests of a registration, or on the text of an opening.
        study_digest, texts: of a registration: the study, and its held-out texts.
        text: of an opening: the text on which scores were about to be seen.
    """

    schema_version: Literal[1] = 1
    kind: Literal["registration", "opening"]
    time: Utc
    study: Words
    registration: Digest
    tests: Count = 0
    study_digest: Line = ""
    texts: tuple[TextPart, ...] = ()
    text: TextPart | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the event: the ledger records an event with the same key once."""
        text = (self.text.role, self.text.digest) if self.text else ()
        return self.registration, self.kind, *text

    @property
    def entry(self) -> dict[str, Any]:
        """Its JSON object, without defaults."""
        return {"schema_version": 1} | self.model_dump(mode="json", exclude_defaults=True)


def overlap(a: TextPart, b: TextPart) -> bool:
    """Return whether two parts share bytes, or may share bytes.

    In a deduplicated corpus a byte lies no later than in the whole corpus. So a part of the whole
    is certainly apart only if it ends before the deduplicated part begins.
    """
    if a.digest == b.digest:
        return True
    if not a.corpus or a.corpus != b.corpus or a.start is None or b.start is None:
        return False
    if a.form == b.form:
        first, second = sorted((a, b), key=lambda part: part.start or 0)
        is_empty = a.start == a.stop or b.start == b.stop
        return not is_empty and (first.stop is None or (second.start or 0) < first.stop)
    if a.form and b.form:
        return True
    original, deduplicated = (b, a) if a.form else (a, b)
    return original.stop is None or original.stop > (deduplicated.start or 0)


@dataclass(frozen=True)
class Use:
    """One study's use of a text.

    Attributes:
        time: when it first saw scores on the text.
        is_test: whether the text was its test part, not only its validation text.
        tests: its primary tests on the text.
    """

    registration: str
    study: str
    time: str
    is_test: bool
    tests: int


def uses(events: Iterable[Event], parts: Sequence[TextPart], own: str = "") -> list[Use]:
    """Return one use per study that opened a text overlapping `parts`, in the order of time.

    The study whose registration is `own` is excluded.
    """
    openings: dict[str, list[Event]] = {}
    for event in events:
        text = event.text
        if text and event.registration != own and any(overlap(text, part) for part in parts):
            openings.setdefault(event.registration, []).append(event)
    all_uses = [
        Use(
            registration,
            opened[0].study,
            time=min(event.time for event in opened),
            is_test=any(event.text is not None and event.text.role == "test" for event in opened),
            tests=max(event.tests for event in opened),
        )
        for registration, opened in openings.items()
    ]
    return sorted(all_uses, key=lambda use: use.time)


def ledger_path() -> Path | None:
    """Return $PARIBUS_LEDGER, else `ledger.jsonl` in the user's data folder.

    None if the variable is empty, which turns the ledger off.
    """
    stated = os.environ.get(VARIABLE)
    if stated is None:
        return data_folder() / "ledger.jsonl"
    return Path(stated) if stated else None


def ledger_file(path: Path) -> JsonLines:
    """Return the file of a ledger."""
    return JsonLines(path, f"restore it, or name another ledger in {VARIABLE}")


def events_in(path: Path) -> list[Event]:
    """Return the events of the ledger at `path`, in its order. Raises ParibusError."""
    return as_events(ledger_file(path).read(), path)


def as_events(entries: list[Entry], path: Path) -> list[Event]:
    """Return entries of the ledger at `path` as events. Raises ParibusError."""
    events = []
    for number, entry in enumerate(entries, start=1):
        try:
            events.append(Event.model_validate(entry))
        except ValidationError as error:
            raise ParibusError(f"{path}, line {number}: {explain(error, Event)}") from None
    return events


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Record nothing in the ledger in this context."""
    token = _is_on.set(False)
    try:
        yield
    finally:
        _is_on.reset(token)


def is_recording() -> bool:
    """Return whether events are recorded in this context."""
    return _is_on.get()
