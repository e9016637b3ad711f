"""Where text that was read once is kept, so that no later command and no worker reads it again.

<cache>/tokens/<key>/    manifest.json  00000.bin  00001.bin ...     tokens, by their content
<cache>/index/<key>.json                                             what was found out of files

A key is a digest of whatever decides the content, so nothing here is ever out of date: other text
has another key. All of it may be deleted at any time. The results folder never holds any of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paribus.digests import canonical_json, digest
from paribus.engine.data.reading_progress import note
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes

# A file that was changed so recently may change again without its time telling (as git has it).
SETTLED_SECONDS = 2.0


def recall(key: str) -> dict[str, Any] | None:
    """What was kept under `key`; None where nothing is, or it is not what was kept."""
    try:
        found = json.loads((cache_folder() / "index" / f"{key}.json").read_bytes())
        value = found["value"]
        return value if found["sha256"] == digest(value) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep(key: str, value: dict[str, Any]) -> None:
    """Keep `value` under `key`, where the cache can be written; it is only ever a shortcut."""
    sealed = canonical_json({"value": value, "sha256": digest(value)})
    with contextlib.suppress(ParibusError):
        write_bytes(cache_folder() / "index" / f"{key}.json", sealed.encode())


def signature(files: list[Path]) -> list[list[Any]] | None:
    """What tells whether `files` are as they were; None where one was changed just now.

    The time of the last change of a file's entry is among it: tools that copy give a file the time
    of another one, and nobody can set that one.
    """
    found = []
    for file in files:
        stat = file.stat()
        if time.time() - max(stat.st_mtime, stat.st_ctime) < SETTLED_SECONDS:
            return None
        times = stat.st_mtime_ns, stat.st_ctime_ns
        path = os.fsencode(file.resolve()).decode(errors="backslashreplace")  # it may be no UTF-8
        found.append([path, stat.st_size, *times, stat.st_ino])
    return found


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time is in here for `path`; others wait, and it is said."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=1)
        except Timeout:
            note("waiting for another run that tokenizes the same text", 0)
            lock.acquire()
    except OSError as error:
        raise ParibusError(
            f"cannot write the cache {path.parent}: {error.strerror}; set PARIBUS_CACHE to a "
            "folder that can be written"
        ) from None
    try:
        yield
    finally:
        lock.release()
