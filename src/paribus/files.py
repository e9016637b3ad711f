"""Atomic writes of files and folders.

Content is written under a temporary name (`.<name>.<random>.part`), synced to disk, then renamed.
`sweep` removes temporary files left behind by killed processes; its caller must hold the folder's
lock.
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
from paribus.untrusted_io import open_regular

PART = ".part"


def cache_folder() -> Path:
    """Return the cache folder: $PARIBUS_CACHE, $XDG_CACHE_HOME/paribus or ~/.cache/paribus.

    All files in it can be re-created.
    """
    own = os.environ.get("PARIBUS_CACHE")
    return Path(own) if own else _user_folder("XDG_CACHE_HOME", ".cache")


def data_folder() -> Path:
    """Return the user's data folder: $XDG_DATA_HOME/paribus or ~/.local/share/paribus.

    Files in it cannot be re-created.
    """
    return _user_folder("XDG_DATA_HOME", ".local/share")


def _user_folder(variable: str, below_home: str) -> Path:
    """Return the folder $`variable`/paribus, or ~/`below_home`/paribus if `variable` is unset."""
    default = os.path.join(os.path.expanduser("~"), below_home)
    return Path(os.environ.get(variable) or default, "paribus")


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically, creating parent folders as needed."""
    with errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        try:
            with os.fdopen(handle, "wb") as file:
                _store(file, content)
            _sync(Path(partial))
            os.chmod(partial, 0o644)  # mkstemp's 0600 would hide results from colleagues
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        _sync(path.parent)


def _store(file: BinaryIO, content: bytes) -> None:
    file.write(content)


@contextlib.contextmanager
def private_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder next to `path`, and remove it on exit unless it was moved."""
    path = path.absolute()
    with errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART))
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def move_folder(partial: Path, path: Path) -> None:
    """Sync a private folder to disk and rename it to `path`, which must not exist or be empty.

    Raises ParibusError if the folder cannot be renamed.
    """
    path = path.absolute()
    with errors_named(path):
        os.chmod(partial, 0o755)
        for folder, _, _ in os.walk(partial):
            _sync(Path(folder))
        os.replace(partial, path)
        _sync(path.parent)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder that is renamed to `path` on exit, or removed after an error.

    `path` must not exist or must be an empty folder.
    """
    with private_folder(path) as partial:
        yield partial
        move_folder(partial, path)


def remove_folder(path: Path) -> None:
    """Remove a folder and its contents, atomically from the viewpoint of other processes.

    If the folder is a symbolic link, only the link is removed. Links inside it are not followed.
    """
    if not os.path.lexists(path):
        return
    with errors_named(path, "remove"):
        away = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART))
        try:
            os.replace(path, away / path.name)
        finally:
            shutil.rmtree(away, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove temporary files and folders left behind in `folder` and below by killed processes."""
    for path in list(folder.rglob(f".*{PART}")):
        if not path.is_symlink():
            with contextlib.suppress(OSError):  # not ours to remove, or gone with a folder above
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises ParibusError if it is not a regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk; skip paths in the temporary folder."""
    if path.absolute().is_relative_to(tempfile.gettempdir()):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def errors_named(
    path: Path, doing: str = "write", way_out: str = "choose another folder"
) -> Iterator[None]:
    """Convert an OSError in the `with` block to a ParibusError that states `path` and a fix."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            way_out = "free disk space and run again"
        raise ParibusError(
            f"cannot {doing} {path}: {error.strerror or error}; {way_out}", code="system"
        ) from None
