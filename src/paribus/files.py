"""Write files and folders atomically: whole, or not at all.

What is written has another name first (`.<name>.<random>.part`); it is brought to the disk, then
renamed. Its writer holds a lock on it meanwhile, so what a killed process has left can be told from
what another one is writing, and `sweep` removes it.
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

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed anyway
    fcntl = None

PART = ".part"

_fleeting: set[Path] = set()  # folders of this process that are thrown away; see `fleeting`


@contextlib.contextmanager
def fleeting() -> Iterator[Path]:
    """Yield a new folder that is gone at the end: what is written below it is not brought to the
    disk, which may take longer than all else."""
    with tempfile.TemporaryDirectory(prefix="paribus-") as name:
        folder = Path(name).absolute()
        _fleeting.add(folder)
        try:
            yield folder
        finally:
            _fleeting.discard(folder)


def _lasts(path: Path) -> bool:
    return _fleeting.isdisjoint(path.absolute().parents)


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
        if not _lasts(path):
            path.write_bytes(content)
            return
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        try:
            with os.fdopen(handle, "wb") as file:
                _lock(handle)
                _store(file, content)
                os.fsync(handle)
                os.chmod(partial, 0o644)  # mkstemp's 0600 would hide results from colleagues
                os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        _sync(path.parent)


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
        if not _lasts(path):
            path.mkdir(exist_ok=True)
            yield path
            return
        for left in path.parent.glob(f".{path.name}.*{PART}"):
            _remove_if_left(left)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART))
    with _hold_lock(partial):
        try:
            yield partial
            with _errors_named(path):
                os.chmod(partial, 0o755)
                inner = [partial, *(p for p in partial.rglob("*") if p.is_dir())]
                for folder in inner:
                    _sync(folder)
                os.replace(partial, path)
                _sync(path.parent)
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
            if name.startswith(".") and name.endswith(PART):
                _remove_if_left(Path(parent) / name)
        folders[:] = [name for name in folders if not name.endswith(PART)]


def file_digest(path: Path) -> str:
    """Return SHA-256 of a file's bytes. Raises ParibusError where it is not a regular file."""
    with open_regular(path, WEIGHTS_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder. Raises OSError where somebody else does."""
    if fcntl is None:
        yield
        return
    # Whatever has such a name: opening a pipe would wait for its writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _remove_if_left(path: Path) -> None:
    """Remove a half-written file or folder that nobody holds."""
    if path.is_symlink():  # none of ours: we write files and folders
        return
    with contextlib.suppress(OSError), _hold_lock(path):  # or gone meanwhile, or not ours to remove
        shutil.rmtree(path) if path.is_dir() else path.unlink()


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
