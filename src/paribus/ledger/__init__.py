"""The ledger: which texts were opened, when, and by which studies.

One file for a machine, or for a folder that several share: `PARIBUS_LEDGER`, or else one in the
user's data folder. `events` is what is recorded in it, `questions` who opened a text before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from paribus.chain import Chain, Entry, entry_digest
from paribus.chain import merged as merged_chains
from paribus.files import data_folder
from paribus.ledger.events import (
    Decided,
    Event,
    Looked,
    Opened,
    Registered,
    TextPart,
    plain,
    rank,
    read,
)
from paribus.ledger.questions import OpenedText, Use, overlap, texts_of, uses

VARIABLE = "PARIBUS_LEDGER"
_is_on: ContextVar[bool] = ContextVar("is_on", default=True)


def ledger_path() -> Path | None:
    """Return $PARIBUS_LEDGER, else `ledger.jsonl` in the user's data folder; None where the
    variable is empty, which turns the ledger off."""
    stated = os.environ.get(VARIABLE)
    if stated is None:
        return data_folder() / "ledger.jsonl"
    return Path(stated) if stated else None


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Record nothing meanwhile: of a study that is only tried."""
    token = _is_on.set(False)
    try:
        yield
    finally:
        _is_on.reset(token)


def is_recording() -> bool:
    """Return whether what happens is to be recorded, as far as `unrecorded` says."""
    return _is_on.get()


def events_in(path: Path) -> list[Event]:
    """Return what the ledger at `path` says, in its order; nothing of one that is not there.

    Raises ParibusError where a line is none of ours.
    """
    return as_events(Chain(path).entries(), path)


def as_events(entries: list[Entry], path: Path) -> list[Event]:
    """Return entries as what they record; `path` is what errors call their ledger."""
    return [read(one, f"{path}: line {number}") for number, one in enumerate(entries, start=1)]


def merged(chains: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Return the entries of several ledgers, each once, by time; in one second a study is
    registered before it opens a text, and opens it before it decides."""
    return merged_chains(chains, rank)


__all__ = [
    "VARIABLE",
    "Chain",
    "Decided",
    "Entry",
    "Event",
    "Looked",
    "Opened",
    "OpenedText",
    "Registered",
    "TextPart",
    "Use",
    "as_events",
    "entry_digest",
    "events_in",
    "is_recording",
    "ledger_path",
    "merged",
    "overlap",
    "plain",
    "read",
    "texts_of",
    "unrecorded",
    "uses",
]
