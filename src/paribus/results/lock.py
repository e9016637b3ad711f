"""The lock file of a results folder, which lets one run at a time write to it.

`.lock` holds the host, the process and the start time of the run. It only saves work: a trial is a
function of (study, arm, seed) and is sealed by an atomic rename, so two runs that write to the same
folder lose nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError

NAME = ".lock"
MOST_BYTES = 4096


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which exists. Raises ParibusError if another run holds it."""
    path = folder / NAME
    own = process_record()
    _take(path, own)
    try:
        yield
    finally:
        if _read(path) == own:  # the folder may have been deleted
            path.unlink(missing_ok=True)


def holder(folder: Path) -> dict[str, Any] | None:
    """Return `host`, `pid`, `started` and `is_here` of the run that holds `folder`.

    None if no run holds it, as far as this host can tell.
    """
    record = _read(folder / NAME)
    if record is None or is_dead(record):
        return None
    return record | {"is_here": record.get("host") == platform.node()}


def process_record() -> dict[str, Any]:
    """Return the host, process and start time of this process."""
    return {"host": platform.node(), "pid": os.getpid(), "started": _started(os.getpid())}


def _take(path: Path, own: dict[str, Any]) -> None:
    """Create the lock file, in place of one that a dead process of this host has left."""
    holder = _read(path)
    if holder is not None and is_dead(holder):
        path.unlink(missing_ok=True)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        holder = _read(path) or {}
        raise ParibusError(
            f"another run is writing to {path.parent} (process {holder.get('pid')} on "
            f"{holder.get('host')}); wait for it, choose --results, or delete {path} if that run "
            "has ended"
        ) from None
    except OSError as error:
        raise ParibusError(
            f"cannot write {path}: {error.strerror}; choose another folder with --results"
        ) from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(own, file)


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a lock file: {} if unreadable, None if missing."""
    try:
        with path.open("rb") as file:
            record = json.loads(file.read(MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def is_dead(record: dict[str, Any]) -> bool:
    """Return whether a run of this host has ended. A run of another host counts as alive."""
    pid = record.get("pid")
    if record.get("host") != platform.node() or not isinstance(pid, int) or pid <= 0:
        return False
    if Path("/proc/self/stat").exists():
        return _started(pid) != record.get("started")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
