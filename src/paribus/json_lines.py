"""JSON-lines files that several processes append to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.untrusted_io import parse_json, read_bytes

MOST_BYTES = 2**30  # of a file
LOCK_SECONDS = 30.0  # a writer holds the lock for milliseconds

Entry = dict[str, Any]


@dataclass(frozen=True)
class JsonLines:
    """JSON objects in the file at `path`, which need not exist yet.

    `way_out` is what an error recommends if the file cannot be read or written.
    """

    path: Path
    way_out: str

    def read(self) -> list[Entry]:
        """Return the entries. A last line without an end, left by a killed writer, is skipped."""
        return self._read()[0]

    @contextlib.contextmanager
    def appending(self) -> Iterator[tuple[list[Entry], Callable[[Entry], None]]]:
        """Lock the file; yield its entries and a function that appends one and syncs it to disk."""
        from filelock import FileLock  # which imports asyncio

        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        with self._errors_named():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # FileLock would wait for a lock file that cannot be created.
            os.close(os.open(lock.lock_file, os.O_RDWR | os.O_CREAT, 0o644))
            lock.acquire(timeout=LOCK_SECONDS)
        try:
            entries, end = self._read()

            def append(entry: Entry) -> None:
                nonlocal end
                line = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                with (
                    self._errors_named(),
                    self.path.open("r+b" if os.path.lexists(self.path) else "xb") as file,
                ):
                    file.truncate(end)  # drop what a killed writer left
                    file.seek(end)
                    file.write(line.encode() + b"\n")
                    end = file.tell()
                    file.flush()
                    os.fsync(file.fileno())

            yield entries, append
        finally:
            lock.release()

    def _read(self) -> tuple[list[Entry], int]:
        """Return the entries, and the number of bytes of their lines."""
        content = read_bytes(self.path, MOST_BYTES) if os.path.lexists(self.path) else b""
        content = content[: content.rfind(b"\n") + 1]
        entries = []
        for number, line in enumerate(content.splitlines(), start=1):
            where = f"{self.path}, line {number}"
            entry = parse_json(line, where, self.way_out)
            if not isinstance(entry, dict):
                raise ParibusError(
                    f"{where} is not a JSON object; {self.way_out}", code="unreadable"
                )
            entries.append(entry)
        return entries, len(content)

    @contextlib.contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ParibusError(
                f"another process has kept {self.path} locked for {LOCK_SECONDS:g} s; wait for it",
                code="in_use",
            ) from None
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ParibusError(
                f"cannot write {self.path}: {reason}; {self.way_out}", code="system"
            ) from None
