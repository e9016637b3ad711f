"""A file that is only ever added to: JSON lines, each with the SHA-256 of the line before.

A line is `{"before": ..., "entry": ..., "sha256": ...}`; `sha256` is of the other two, so that an
edit of the last line shows as well. Writers take turns by a lock beside the file, and bring each
line to the disk before they go on. A writer that is killed leaves at most a part of a line at the
end: the next one drops it, and says so.

What this shows is a mistake, or a careless edit. Whoever writes all lines anew can make anything
up, and lines that are cut off at the end leave no trace in the file (docs/explanation/ledger.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.untrusted_io import read_bytes

FIRST = "0" * 64  # what the first line has for the digest of the line before
MOST_BYTES = 2**30  # of a file
PATIENCE_SECONDS = 30.0  # a writer holds the lock for some milliseconds

Entry = dict[str, Any]


@dataclass(frozen=True)
class Chain:
    """The lines of the file at `path`, which need not exist yet.

    Args:
        path: the file.
        name: what errors call the file.
        way_out: what they say to do where it cannot be written, or a line is none of ours.
    """

    path: Path
    name: str = "ledger"
    way_out: str = "name another file in PARIBUS_LEDGER"

    def entries(self) -> list[Entry]:
        """Return what was written, in its order; what a kill has cut off at the end is not.

        Raises ParibusError where a line is none of ours. Whether lines were edited, `verify` says.
        """
        lines, _ = self._lines()
        return [self._entry(number, line) for number, line in enumerate(lines, start=1)]

    def verify(self, *, torn: bool = True) -> list[str]:
        """Return what is wrong, with the number of the line; empty where nothing is.

        A line that a kill has cut off at the end is told of where `torn`.
        """
        findings, before = [], FIRST
        lines, rest = self._lines()
        for number, line in enumerate(lines, start=1):
            try:
                whole = _parsed(line)
            except ValueError as error:
                findings.append(f"line {number} is no line of a {self.name} ({error})")
            else:
                if whole["sha256"] != _own_digest(whole["before"], whole["entry"]):
                    findings.append(f"line {number} was edited")
                elif line != _line(whole["before"], whole["entry"])[:-1]:
                    findings.append(f"line {number} was written anew, in other spelling")
                if whole["before"] != before:
                    why = "does not follow the line before it"
                    findings.append(f"line {number} {why}: one was edited, deleted, added or moved")
            before = hashlib.sha256(line).hexdigest()
        if rest and torn:
            number = len(lines) + 1
            findings.append(f"line {number} is cut off, as by a kill; the next writer drops it")
        return findings

    @contextlib.contextmanager
    def adding(self) -> Iterator[Writer]:
        """Keep other writers out, and yield what adds lines.

        Raises ParibusError where the file cannot be written, or is held by another for too long.
        """
        with self._lock():
            lines, torn = self._lines()
            found = [self._entry(number, line) for number, line in enumerate(lines, start=1)]
            if torn:
                lines, found = self._healed(lines, found, torn)
            last = hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST
            yield Writer(self, found, last)

    def write(self, entries: Iterable[Entry]) -> None:
        """Write these lines in the place of all that are there."""
        content, before = [], FIRST
        for entry in entries:
            content.append(_line(before, entry))
            before = hashlib.sha256(content[-1][:-1]).hexdigest()
        with self._lock():
            write_bytes(self.path, b"".join(content))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Where it cannot be made, the lock would be waited for as if another had it.
            os.close(os.open(lock.lock_file, os.O_RDWR | os.O_CREAT, 0o644))
            lock.acquire(timeout=PATIENCE_SECONDS)
        except Timeout:
            raise ParibusError(
                f"another process has been writing to the {self.name} {self.path} for "
                f"{PATIENCE_SECONDS:g} s; wait for it"
            ) from None
        except (OSError, NotImplementedError) as error:
            raise self.unwritable(error) from None
        try:
            yield
        finally:
            lock.release()

    def _lines(self) -> tuple[list[bytes], bytes]:
        """Return whole lines, and what stands after the last of them."""
        if not os.path.lexists(self.path):
            return [], b""
        *lines, torn = read_bytes(self.path, MOST_BYTES).split(b"\n")
        return lines, torn

    def _entry(self, number: int, line: bytes) -> Entry:
        try:
            return _parsed(line)["entry"]
        except ValueError as error:
            raise ParibusError(
                f"{self.path}: line {number} is no line of a {self.name} ({error}); restore it, or "
                f"{self.way_out}"
            ) from None

    def unwritable(self, error: Exception) -> ParibusError:
        """Return the error of a file that cannot be written."""
        why = error.strerror or error if isinstance(error, OSError) else error
        return ParibusError(f"cannot write the {self.name} {self.path}: {why}; {self.way_out}")

    def _healed(
        self, lines: list[bytes], found: list[Entry], torn: bytes
    ) -> tuple[list[bytes], list[Entry]]:
        """Drop what a killed writer left; a line that lacks its end alone is kept."""
        try:
            whole = _parsed(torn)
        except ValueError:
            whole = None
        try:
            with self.path.open("r+b") as file:
                if whole is not None:
                    file.seek(0, os.SEEK_END)
                    file.write(b"\n")
                else:
                    file.truncate(sum(len(line) + 1 for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self.unwritable(error) from None
        if whole is not None:
            return [*lines, torn], [*found, whole["entry"]]
        logging.getLogger("paribus").warning(
            "the %s %s ended in a part of a line (%d bytes), as a killed process leaves it: "
            "it was dropped",
            self.name,
            self.path,
            len(torn),
        )
        return lines, found


class Writer:
    """What adds lines to a file whose lock is held; `entries` are those that are there."""

    def __init__(self, chain: Chain, entries: list[Entry], last: str) -> None:
        self._chain, self._last = chain, last
        self.entries = entries

    def append(self, entry: Entry) -> None:
        """Add a line, and bring it to the disk."""
        line = _line(self._last, entry)
        try:
            path = self._chain.path
            if not os.path.lexists(path):
                write_bytes(path, line)
            else:
                with path.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise self._chain.unwritable(error) from None
        self._last = hashlib.sha256(line[:-1]).hexdigest()
        self.entries.append(entry)


def merged(
    chains: Sequence[Sequence[Entry]], rank: Callable[[Entry], int] = lambda entry: 0
) -> list[Entry]:
    """Return the entries of all, each once, by time, then by rank, then by digest."""
    every = {entry_digest(entry): entry for chain in chains for entry in chain}

    def place(key: str) -> tuple[str, int, str]:
        return every[key].get("time", ""), rank(every[key]), key

    return [every[key] for key in sorted(every, key=place)]


def entry_digest(entry: Entry) -> str:
    """Return SHA-256 of an entry, whichever line it stands in."""
    return hashlib.sha256(_text(entry)).hexdigest()


def _text(value: Any) -> bytes:
    compact = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return compact.encode()


def _own_digest(before: str, entry: Entry) -> str:
    return hashlib.sha256(_text({"before": before, "entry": entry})).hexdigest()


def _line(before: str, entry: Entry) -> bytes:
    whole = {"before": before, "entry": entry, "sha256": _own_digest(before, entry)}
    return _text(whole) + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    """Return a line as a table of its three keys. Raises ValueError."""
    try:
        whole = json.loads(line)
    except RecursionError:
        raise ValueError("tables too deep inside one another") from None
    if not isinstance(whole, dict) or whole.keys() != {"before", "entry", "sha256"}:
        raise ValueError("it has not the keys before, entry and sha256")
    if not isinstance(whole["entry"], dict) or not isinstance(whole["before"], str):
        raise ValueError("its entry is no table")
    return whole
