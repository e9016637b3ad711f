"""Leases: who may write to a folder that several machines share, by what NFS itself promises.

A lease is a file `.lock.<number>`, and the one with the highest number is in force. Three
guarantees of the file system carry it (RFC 1813, RFC 7530), and no lock daemon and no clock:

- A hard link is made by one caller alone, so each number has one taker. (Where there are no hard
  links, a file that is created exclusively.)
- A file that is opened shows what its last writer closed, or that it is gone: close-to-open.
- A time stamp that is set changes, whoever's clock it is of.

A holder that lives sets the stamp of its file every few seconds. Whoever else wants the folder
asks the system, where the holder is a process of this machine; and elsewhere watches the stamp,
by its own clock alone, and takes the next number if it does not change. Taking removes the file
of the number before, so that a holder which only seemed dead finds at its next write that it is
none any more: the number is a fencing token, checked before each file is put in its place.
Between that check and the rename lie microseconds; what a late writer could put there then are
the same bytes, as every trial is a function of its seed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.files import PART, write_bytes

NAME = ".lock"
BEAT_SECONDS = 5.0
PATIENCE_SECONDS = 75.0  # attributes of a file may be cached for 60, though not of one just opened
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
MOST_BYTES = 4096


@dataclass(frozen=True)
class Lease:
    """A file, and what its first line is as long as it is held; both are plain text, so that a
    process anywhere can be told to write only while it holds."""

    path: Path
    token: str

    def holds(self) -> bool:
        """Return whether it is still held: the file is opened, and read."""
        return _token(self.path) == self.token


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").partition("\n")[0]
    except OSError:
        return ""


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[Lease]:
    """Hold `folder`, which exists, until the body is left.

    Raises ParibusError where another process holds it, in a line that says which.
    """
    lease = _take(folder)
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(lease, over), daemon=True)
    beating.start()
    try:
        yield lease
    finally:
        over.set()
        beating.join()
        if lease.holds():  # else it is another's, or the folder was deleted
            with contextlib.suppress(OSError):
                lease.path.unlink()


def holder(folder: Path) -> dict[str, Any] | None:
    """Return what the holder of `folder` said of itself, `is_here` among it; None where nobody
    holds it, as far as this machine can tell."""
    found = _in_force(folder)
    about = _about(found[1]) if found else {}
    if not about or _is_dead(about):
        return None
    return about | {"is_here": about.get("system") == _system()}


def _take(folder: Path) -> Lease:
    found = _in_force(folder)
    if found and (who := _alive(found[1])):
        raise ParibusError(
            f"another run is writing to {folder}{who}; wait for it, or choose --results"
        )
    number = found[0] + 1 if found else 1
    token = f"{number}-{secrets.token_hex(8)}"
    path = folder / f"{NAME}.{number}"
    about = {"host": os.uname().nodename if hasattr(os, "uname") else "", "pid": os.getpid()}
    about |= {"system": _system(), "started": _started(os.getpid())}
    draft = folder / f"{NAME}.{secrets.token_hex(4)}{PART}"
    write_bytes(draft, f"{token}\n{json.dumps(about)}\n".encode())
    try:
        _claim(draft, path)
    except FileExistsError:
        raise ParibusError(
            f"another run has just begun to write to {folder}; wait for it, or choose --results"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    for before in _numbered(folder):
        if before < number:
            with contextlib.suppress(OSError):
                (folder / f"{NAME}.{before}").unlink()
    if max(_numbered(folder), default=0) > number or _token(path) != token:
        with contextlib.suppress(OSError):
            path.unlink()
        raise ParibusError(f"another run has just taken {folder}; wait for it, or choose --results")
    return Lease(path, token)


def _claim(draft: Path, path: Path) -> None:
    """Give the content of `draft` the name `path`, which nobody has. Raises FileExistsError."""
    try:
        os.link(draft, path)
    except FileExistsError:
        # The answer of a server may be lost, and the request be made twice: then it is ours.
        if os.stat(draft).st_nlink != 2 or not os.path.samefile(draft, path):
            raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(draft.read_bytes())


def _beat(lease: Lease, over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(lease.path)


def _numbered(folder: Path) -> list[int]:
    names = (path.name.removeprefix(f"{NAME}.") for path in folder.glob(f"{NAME}.*"))
    return [int(name) for name in names if name.isdecimal() and len(name) < 18]


def _in_force(folder: Path) -> tuple[int, Path] | None:
    number = max(_numbered(folder), default=0)
    return (number, folder / f"{NAME}.{number}") if number else None


def _alive(path: Path) -> str:
    """Return words on the holder of `path`, or nothing where it is dead; waits to see."""
    about = _about(path)
    words = f" (process {about.get('pid')} of {about.get('host')})" if about else ""
    if about.get("system") == _system():
        return "" if _is_dead(about) else words
    first, began = _stamp(path), time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        time.sleep(min(1.0, BEAT_SECONDS))
        now = _stamp(path)
        if now is None:
            return ""
        if now != first:
            return words or " (another machine)"
    return ""


def _stamp(path: Path) -> int | None:
    """Return when the file was last touched, by whatever clock; None where it is gone."""
    try:
        with path.open("rb") as file:  # opened, so that no cache answers
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def _about(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            lines = file.read(MOST_BYTES).decode("utf-8", "replace").split("\n")
        found = json.loads(lines[1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_dead(about: dict[str, Any]) -> bool:
    """Tell whether a holder of this machine is gone; of another machine it is not known here."""
    pid = about.get("pid")
    if about.get("system") != _system() or not isinstance(pid, int) or pid <= 0:
        return False
    started = _started(pid)
    if started is not None:
        return started != about.get("started")
    if Path("/proc/self").exists():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _system() -> str:
    """Return what tells this running system from others: that of one boot, and in it the processes
    that number each other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _started(pid: int) -> str | None:
    """Return when a process began, in the system's ticks; None where there is no telling."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
