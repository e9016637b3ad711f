"""JSON-lines files that several processes append to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paribus.errors import ParibusError
from paribus.untrusted_io import parse_json, read_bytes

MOST_BYTES = 2**30  # of a file
LOCK_SECONDS = 30.0  # a writer holds the lock for milliseconds

Entry = dict[str, Any]


@dataclass(frozen=True)
class JsonLines:
    """JSON objects in the file at `path`, which need not exist yet.

    Attributes:
        path: the file.
        way_out: what an error recommends if the file cannot be read or written.
    """

    path: Path
    way_out: str

    def read(self) -> list[Entry]:
        """Return the entries. A last line without an end, left by a killed writer, is skipped.

        Raises ParibusError for a line that is not a JSON object.
        """
        return self._entries(self._whole_lines())

    @contextlib.contextmanager
    def appending(self) -> Iterator[tuple[list[Entry], Callable[[Entry], None]]]:
        """Lock the file; yield its entries and a function that appends one and syncs it to disk.

        Raises ParibusError if the file cannot be written, or if another process keeps the lock.
        """
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # FileLock would wait for a lock file that cannot be created.
            os.close(os.open(lock.lock_file, os.O_RDWR | os.O_CREAT, 0o644))
            lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            raise ParibusError(
                f"another process has kept {self.path} locked for {LOCK_SECONDS:g} s; wait for it"
            ) from None
        except (OSError, NotImplementedError) as error:
            raise self._unwritable(error) from None
        try:
            content = self._whole_lines()
            yield self._entries(content), self._appender(len(content))
        finally:
            lock.release()

    def _whole_lines(self) -> bytes:
        if not os.path.lexists(self.path):
            return b""
        content = read_bytes(self.path, MOST_BYTES)
        return content[: content.rfind(b"\n") + 1]

    def _entries(self, content: bytes) -> list[Entry]:
        entries = []
        for number, line in enumerate(content.splitlines(), start=1):
            entry = parse_json(line, f"{self.path}, line {number}", self.way_out)
            if not isinstance(entry, dict):
                raise ParibusError(
                    f"{self.path}, line {number} is not a JSON object; {self.way_out}"
                )
            entries.append(entry)
        return entries

    def _appender(self, end: int) -> Callable[[Entry], None]:
        def append(entry: Entry) -> None:
            nonlocal end
            line = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            try:
                with self.path.open("r+b" if os.path.lexists(self.path) else "xb") as file:
                    file.truncate(end)  # drop what a killed writer left
                    file.seek(end)
                    file.write(line.encode() + b"\n")
                    end = file.tell()
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise self._unwritable(error) from None

        return append

    def _unwritable(self, error: Exception) -> ParibusError:
        reason = error.strerror or error if isinstance(error, OSError) else error
        return ParibusError(f"cannot write {self.path}: {reason}; {self.way_out}")
