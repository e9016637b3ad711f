"""Text that was read once is kept, so that no later command and no worker reads it again.

<cache>/tokens/<key>/    manifest.json  00000.bin  00001.bin ...     tokens, by their content
<cache>/index/<key>.json                                             what was found out of files

A key is a digest of whatever decides the content, so nothing here is ever out of date: other text
has another key. All of it may be deleted at any time. The results folder never holds any of it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import BaseModel, NonNegativeInt, PositiveInt

from paribus.digests import canonical_json, digest
from paribus.engine.data.reading_progress import note
from paribus.engine.data.tokens import SHARD_TOKENS, ShardedTokens, Shards, hash_ids, in_order
from paribus.errors import ParibusError
from paribus.files import cache_folder, remove_folder, whole_folder, write_bytes

# A file that was changed so recently may change again without its time telling (as git has it).
SETTLED_SECONDS = 2.0
FORMAT = 2  # of the shards
MANIFEST, STAMP = "manifest.json", "stamp.json"


def recall(key: str) -> dict[str, Any] | None:
    """Return what was kept under `key`; None where nothing is, or it is not what was kept."""
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
    """Return what tells whether `files` are as they were; None where one was changed just now.

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
    """Let one process at a time in for `path`; others wait, and it is said."""
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


class Shard(BaseModel, strict=True):
    """A file of the manifest."""

    tokens: PositiveInt
    sha256: str


class Manifest(BaseModel, strict=True):
    """The record of a folder of tokens: `about` names the text by whatever decides it."""

    about: dict[str, Any]
    dtype: str
    tokens: NonNegativeInt
    shards: list[Shard]


def sharded(
    about: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], dtype: np.dtype[Any]
) -> ShardedTokens:
    """Return the tokens that `about` names; they are made where they are not there yet.

    `about` is whatever decides them. `make` gives them in arrays of any lengths. Two runs that need
    them at once make them once. Raises ParibusError where the cache cannot be written, or was
    changed.
    """
    about = about | {"format": FORMAT, "shard_tokens": SHARD_TOKENS}
    folder = cache_folder() / "tokens" / digest(about)
    if not (folder / MANIFEST).is_file():
        with locked(folder):
            if not (folder / MANIFEST).is_file():
                if folder.is_dir():  # what somebody left of it: nobody can tell whose tokens
                    remove_folder(folder)
                with whole_folder(folder) as partial:
                    write_shards(partial, about, make(), dtype)
    return open_shards(folder, about)


def write_shards(
    folder: Path, about: dict[str, Any], arrays: Iterable[np.ndarray], dtype: np.dtype[Any]
) -> None:
    """Write `arrays`, one after the other, as shards; the manifest comes last."""

    def write(number: int, ids: np.ndarray) -> dict[str, Any]:
        write_bytes(folder / _name(number), ids.tobytes())
        return {"tokens": len(ids), "sha256": hash_ids(ids)}

    with ThreadPoolExecutor(1) as aside:
        # One is hashed and written while the next is filled; no more are held.
        written = list(
            in_order(aside, write, enumerate(_filled(arrays, SHARD_TOKENS, dtype)), ahead=1)
        )
    total = sum(shard["tokens"] for shard in written)
    manifest = {"about": about, "dtype": dtype.str, "tokens": total, "shards": written}
    write_bytes(folder / MANIFEST, canonical_json(manifest).encode())
    _write_stamp(folder, len(written))


def open_shards(folder: Path, about: dict[str, Any]) -> ShardedTokens:
    """Return the tokens in `folder`.

    Raises ParibusError where they are others than `about` names, and where a shard is not what was
    written.

    A shard whose size and times are as they were is taken to be so; another is read and compared
    by its hash.
    """
    way_out = f"delete the folder {folder} to have the text tokenized again"
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        dtype, sizes = np.dtype(manifest.dtype), [shard.tokens for shard in manifest.shards]
        if dtype.kind not in "ui" or sum(sizes) != manifest.tokens:
            raise ValueError("no manifest of shards")
    except (OSError, ValueError, TypeError):
        raise ParibusError(f"{folder / MANIFEST} cannot be read; {way_out}") from None
    if manifest.about != about:
        changed = [key for key in about if manifest.about.get(key) != about[key]]
        raise ParibusError(
            f"{folder} holds the tokens of another text or tokenizer ({', '.join(changed)}); "
            f"{way_out}"
        )
    _require_unchanged(folder, manifest.shards, dtype, way_out)
    files = tuple(folder / _name(number) for number in range(len(sizes)))
    return ShardedTokens(Shards(files, dtype, about["shard_tokens"]), 0, sum(sizes))


def shard_hashes(tokens: ShardedTokens) -> list[str]:
    """Return the hash of each shard in the folder of `tokens`, from its manifest."""
    content = (tokens.shards.files[0].parent / MANIFEST).read_bytes()
    return [shard.sha256 for shard in Manifest.model_validate_json(content).shards]


def _name(number: int) -> str:
    return f"{number:05}.bin"


def _filled(arrays: Iterable[np.ndarray], size: int, dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    """Yield the ids of all `arrays` in new arrays of `size`; the last may have fewer."""
    shard, n = np.empty(size, dtype), 0
    for ids in arrays:
        at = 0
        while at < len(ids):
            taken = min(size - n, len(ids) - at)
            shard[n : n + taken] = ids[at : at + taken]
            n, at = n + taken, at + taken
            if n == size:
                yield shard
                shard, n = np.empty(size, dtype), 0
    if n:
        yield shard[:n]


def _stat(file: Path) -> list[int]:
    """Return what tells whether a file is as it was; see `signature`."""
    found = os.stat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _write_stamp(folder: Path, n_shards: int) -> None:
    stamp = [_stat(folder / _name(number)) for number in range(n_shards)]
    write_bytes(folder / STAMP, canonical_json(stamp).encode())


def _require_unchanged(
    folder: Path, shards: list[Shard], dtype: np.dtype[Any], way_out: str
) -> None:
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
    except (OSError, ValueError, RecursionError):
        stamp = []  # it is only ever a shortcut
    stamp = stamp if isinstance(stamp, list) else []
    is_stale = False
    for number, shard in enumerate(shards):
        file = folder / _name(number)
        n_bytes = shard.tokens * dtype.itemsize
        try:
            stat = _stat(file)
            if number < len(stamp) and stamp[number] == stat and stat[0] == n_bytes:
                continue
            is_stale = True
            same = stat[0] == n_bytes and hash_ids(np.fromfile(file, dtype)) == shard.sha256
        except (OSError, ValueError) as error:
            raise ParibusError(f"{file} cannot be read ({error}); {way_out}") from None
        if not same:
            raise ParibusError(f"{file} is not the shard that was written; {way_out}")
    if is_stale:  # copied, or touched, and found good
        with contextlib.suppress(ParibusError):
            _write_stamp(folder, len(shards))
