"""Text that was read once is kept, so that no later command and no worker reads it again.

<cache>/tokens/<key>/    tokens.bin  manifest.json     tokens, by their content
<cache>/index/<key>.json                               what is known of files

A key is a digest of whatever decides the content, so nothing here is ever out of date: other text
has another key. All of it may be deleted at any time. The results folder never holds any of it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import BaseModel, NonNegativeInt

from paribus.digests import canonical_json, digest
from paribus.engine.data.pieces import note
from paribus.engine.data.tokens import Tokens, tokens_digest
from paribus.errors import ParibusError
from paribus.files import cache_folder, remove_folder, whole_folder, write_bytes

# A file that was changed so recently may change again without its time telling (as git has it).
SETTLED_SECONDS = 2.0
FORMAT = 4  # of the files of tokens
TOKENS, MANIFEST = "tokens.bin", "manifest.json"


def recall(key: str) -> dict[str, Any] | None:
    """Return what was kept under `key`; None where nothing is, or it is not what was kept."""
    try:
        kept = json.loads((cache_folder() / "index" / f"{key}.json").read_bytes())
        return kept["value"] if kept["sha256"] == digest(kept["value"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep(key: str, value: dict[str, Any]) -> None:
    """Keep `value` under `key`, where the cache can be written; it is only ever a shortcut."""
    sealed = canonical_json({"value": value, "sha256": digest(value)})
    with contextlib.suppress(ParibusError):
        write_bytes(cache_folder() / "index" / f"{key}.json", sealed.encode())


def signature(files: list[Path]) -> list[list[Any]] | None:
    """Return what tells whether `files` are as they were; None where one was changed just now.

    The time of the last change of a file's entry is among it: tools that copy give a file the time
    of another one, and nobody can set that one.
    """
    entries = []
    for file in files:
        stat = file.stat()
        if time.time() - max(stat.st_mtime, stat.st_ctime) < SETTLED_SECONDS:
            return None
        path = os.fsencode(file.resolve()).decode(errors="backslashreplace")  # it may be no UTF-8
        times = stat.st_mtime_ns, stat.st_ctime_ns
        entries.append([path, stat.st_size, *times, stat.st_ino])
    return entries


class Manifest(BaseModel, strict=True):
    """The record of a folder of tokens.

    Attributes:
        identity: names the text by whatever decides it.
        stamp: size and times of the file of tokens when its digest was taken.
    """

    identity: dict[str, Any]
    dtype: str
    tokens: NonNegativeInt
    digest: str
    stamp: list[int]

    def write(self, folder: Path) -> None:
        """Write it to a folder of tokens."""
        write_bytes(folder / MANIFEST, canonical_json(self.model_dump()).encode())


def cached_tokens(
    identity: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], dtype: np.dtype[Any]
) -> tuple[Tokens, str]:
    """Return the tokens that `identity` names, and their digest; they are made unless they exist.

    `make` gives them in arrays of any lengths. Two runs that need them at once make them once.
    Raises ParibusError where the cache cannot be written, or was changed.
    """
    identity = identity | {"format": FORMAT}
    folder = cache_folder() / "tokens" / digest(identity)
    if not (folder / MANIFEST).is_file():
        with _locked(folder):
            if not (folder / MANIFEST).is_file():
                remove_folder(folder)  # a remainder: nobody can tell whose tokens
                with whole_folder(folder) as partial:
                    _write(partial, identity, make(), dtype)
    return _open(folder)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path`; a process that waits for it notes so."""
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
            "folder that can be written",
            code="system",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _write(
    folder: Path, identity: dict[str, Any], arrays: Iterable[np.ndarray], dtype: np.dtype[Any]
) -> None:
    """Write `arrays`, one after the other, as one file; the manifest comes last."""
    with open(folder / TOKENS, "wb") as file:
        for ids in arrays:
            file.write(ids.astype(dtype, copy=False).data)
        file.flush()
        os.fsync(file.fileno())
    tokens = _mapped(folder / TOKENS, dtype)
    Manifest(
        identity=identity,
        dtype=dtype.str,
        tokens=len(tokens),
        digest=tokens_digest(tokens),
        stamp=_stamp(folder),
    ).write(folder)


def _open(folder: Path) -> tuple[Tokens, str]:
    """Return the tokens in `folder`, and their digest.

    A file whose size and times are as they were is taken to be so; another is read and compared by
    its digest. Raises ParibusError where it is not the one that was written.
    """
    way_out = f"delete the folder {folder} to have the text tokenized again"
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        tokens = _mapped(folder / TOKENS, np.dtype(manifest.dtype))
        is_same = len(tokens) == manifest.tokens and digest(manifest.identity) == folder.name
        is_stale = is_same and manifest.stamp != _stamp(folder)
        if is_stale:
            is_same = tokens_digest(tokens) == manifest.digest
    except (OSError, ValueError, TypeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "its manifest is damaged"
        raise ParibusError(
            f"cannot read {folder}: {problem}; {way_out}", code="unreadable"
        ) from None
    if not is_same:
        raise ParibusError(f"{folder} is not what was written; {way_out}", code="changed")
    if is_stale:  # copied, or touched, and found good
        manifest.stamp = _stamp(folder)
        with contextlib.suppress(ParibusError):
            manifest.write(folder)
    return tokens, manifest.digest


def _mapped(file: Path, dtype: np.dtype[Any]) -> Tokens:
    # An empty file cannot be mapped.
    return np.memmap(file, dtype, "r") if file.stat().st_size else np.zeros(0, dtype)


def _stamp(folder: Path) -> list[int]:
    """Return what tells whether the file of tokens is as it was; see `signature`."""
    stat = os.stat(folder / TOKENS)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
