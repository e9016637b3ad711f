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
    """Make `folder` and hold its lock. Raises ParibusError if another run holds it."""
    path, own = folder / NAME, process_record()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and holder(folder) is None:
            path.unlink(missing_ok=True)  # left by a process that died
        with path.open("x", encoding="utf-8") as file:
            json.dump(own, file)
    except FileExistsError:
        other = holder(folder) or {}
        raise ParibusError(
            f"another run is writing to {folder} (process {other.get('pid')} on "
            f"{other.get('host')}); wait for it, choose --results, or delete {path} if that run "
            "has ended",
            code="in_use",
        ) from None
    except OSError as error:
        raise ParibusError(
            f"cannot write to {folder}: {error.strerror}; choose another with --results",
            code="system",
        ) from None
    try:
        yield
    finally:
        if holder(folder) == own | {"is_here": True}:  # the folder may have been deleted
            path.unlink(missing_ok=True)


def holder(folder: Path) -> dict[str, Any] | None:
    """Return `host`, `pid`, `started` and `is_here` of the run that holds `folder`.

    None if no run holds it, as far as this host can tell.
    """
    try:
        with (folder / NAME).open("rb") as file:
            record = json.loads(file.read(MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        record = {}  # it is being written
    record = record if isinstance(record, dict) else {}
    return None if is_dead(record) else record | {"is_here": record.get("host") == platform.node()}


def process_record() -> dict[str, Any]:
    """Return the host, process and start time of this process."""
    return {"host": platform.node(), "pid": os.getpid(), "started": _started(os.getpid())}


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
    except PermissionError:  # it runs, as another user
        return False
    return False


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None if it is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
