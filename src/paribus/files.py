"""Write files and folders atomically: whole, or not at all.

What is written has another name first (`.<name>.<random>.part`); it is brought to the disk, then
renamed. `sweep` removes what killed processes have left under such names; whoever calls it holds
the lock of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from paribus.errors import ParibusError
from paribus.untrusted_io import WEIGHTS_BYTES, open_regular

PART = ".part"


def cache_folder() -> Path:
    """$PARIBUS_CACHE, else $XDG_CACHE_HOME/paribus, else ~/.cache/paribus.

    All that lies there can be made again.
    """
    if own := os.environ.get("PARIBUS_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "paribus"


def data_folder() -> Path:
    """$XDG_DATA_HOME/paribus, else ~/.local/share/paribus: what cannot be made again lies there."""
    return Path(os.environ.get("XDG_DATA_HOME") or _home() / ".local" / "share") / "paribus"


def _home() -> Path:
    """Return the user's home; without one, a path that nobody can write to."""
    home = os.path.expanduser("~")
    return Path(home if os.path.isabs(home) else os.devnull)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically; folders are made as needed."""
    with _errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        try:
            with os.fdopen(handle, "wb") as file:
                _store(file, content)
                _sync(path, handle)
            os.chmod(partial, 0o644)  # mkstemp's 0600 would hide results from colleagues
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def _store(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to write into, which becomes `path` at the end and is gone after an error.

    `path` itself may be there as long as it is empty.
    """
    path = path.absolute()
    with _errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART))
    try:
        yield partial
        with _errors_named(path):
            os.chmod(partial, 0o755)
            for folder in [partial, *(p for p in partial.rglob("*") if p.is_dir())]:
                _sync_folder(folder)
            os.replace(partial, path)
            _sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_folder(path: Path) -> None:
    """Remove a folder with its content; for other processes it disappears at once.

    Of a link, the link itself: links are not followed, here or below.
    """
    if not os.path.lexists(path):
        return
    with _errors_named(path, "remove"):
        away = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART))
        try:
            os.replace(path, away / path.name)
        finally:
            shutil.rmtree(away, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what killed processes have left half-written in `folder` and below."""
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(parent, name)
            if not (name.startswith(".") and name.endswith(PART)) or path.is_symlink():
                continue
            with contextlib.suppress(OSError):  # not ours to remove
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        folders[:] = [name for name in folders if not name.endswith(PART)]


def file_digest(path: Path) -> str:
    """Return SHA-256 of a file's bytes. Raises ParibusError where it is not a regular file."""
    with open_regular(path, WEIGHTS_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path, handle: int) -> None:
    """Bring a file or folder to the disk, unless it is temporary anyway."""
    if not path.absolute().is_relative_to(tempfile.gettempdir()):
        os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(folder, handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _errors_named(path: Path, doing: str = "write") -> Iterator[None]:
    """Raise an OSError as one line that names `path` and the way out."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way_out = "make room and run again" if full else "choose another folder"
        raise ParibusError(
            f"cannot {doing} {path}: {error.strerror or error}; {way_out}", code="system"
        ) from None
