"""Tokens on disk: written once, by all cores, aside and then renamed; opened by everyone else."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from paribus.digests import canonical_json, digest
from paribus.engine.data import cache
from paribus.engine.data.tokens import SHARD_TOKENS, ShardedTokens, Shards, hash_ids
from paribus.errors import ParibusError
from paribus.files import cache_folder, remove_folder, whole_folder, write_bytes

FORMAT = 2
MANIFEST, STAMP = "manifest.json", "stamp.json"

A = TypeVar("A")
B = TypeVar("B")


def sharded(
    about: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], dtype: np.dtype[Any]
) -> ShardedTokens:
    """The tokens that `about` names by whatever decides them; made where they are not there yet.

    `make` gives them in arrays of any lengths. Two runs that need them at once make them once.
    Raises ParibusError where the cache cannot be written, or was changed.
    """
    about = about | {"format": FORMAT, "shard_tokens": SHARD_TOKENS}
    folder = cache_folder() / "tokens" / digest(about)
    if not (folder / MANIFEST).is_file():
        with cache.locked(folder):
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
    """The tokens in `folder`. Raises ParibusError where they are others than `about` names, and
    where a shard is not what was written.

    A shard whose size and times are as they were is taken to be so; another is read and compared
    by its hash.
    """
    way_out = f"delete the folder {folder} to have the text tokenized again"
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        shards, found = manifest["shards"], manifest["about"]
        dtype = np.dtype(manifest["dtype"])
        whole = isinstance(found, dict) and dtype.kind in "ui"
        whole = whole and _are_shards(shards, manifest["tokens"])
        if not whole:
            raise ValueError("no manifest of shards")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ParibusError(f"{folder / MANIFEST} cannot be read; {way_out}") from None
    sizes = [shard["tokens"] for shard in shards]
    if found != about:
        changed = [key for key in about if found.get(key) != about[key]]
        raise ParibusError(
            f"{folder} holds the tokens of another text or tokenizer ({', '.join(changed)}); "
            f"{way_out}"
        )
    _require_unchanged(folder, shards, dtype, way_out)
    files = tuple(folder / _name(number) for number in range(len(shards)))
    return ShardedTokens(Shards(files, dtype, about["shard_tokens"]), 0, sum(sizes))


def _are_shards(shards: Any, n_tokens: Any) -> bool:
    """Whether a manifest's list is one of shards that come to `n_tokens`."""
    if not isinstance(shards, list) or not all(isinstance(shard, dict) for shard in shards):
        return False
    sizes = [shard["tokens"] for shard in shards]
    if not all(type(size) is int and size > 0 for size in [*sizes, n_tokens or 1]):
        return False
    return sum(sizes) == n_tokens and all(isinstance(shard["sha256"], str) for shard in shards)


def shard_hashes(tokens: ShardedTokens) -> list[str]:
    """The hash of each shard in the folder of `tokens`, from its manifest."""
    manifest = json.loads((tokens.shards.files[0].parent / MANIFEST).read_bytes())
    return [shard["sha256"] for shard in manifest["shards"]]


def in_order(
    pool: ThreadPoolExecutor, do: Callable[..., B], tasks: Iterable[tuple[Any, ...]], ahead: int
) -> Iterator[B]:
    """`do(*task)` of every task, by the pool and in their order; `ahead` of them wait at most."""
    waiting: deque[Future[B]] = deque()
    for task in tasks:
        waiting.append(pool.submit(do, *task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _name(number: int) -> str:
    return f"{number:05}.bin"


def _filled(arrays: Iterable[np.ndarray], size: int, dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    """The ids of all `arrays` in new arrays of `size`; the last may have fewer."""
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
    """What tells whether a file is as it was; see `cache.signature`."""
    found = os.stat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _write_stamp(folder: Path, n_shards: int) -> None:
    stamp = [_stat(folder / _name(number)) for number in range(n_shards)]
    write_bytes(folder / STAMP, canonical_json(stamp).encode())


def _require_unchanged(
    folder: Path, shards: list[dict[str, Any]], dtype: np.dtype[Any], way_out: str
) -> None:
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
    except (OSError, ValueError, RecursionError):
        stamp = []
    if not isinstance(stamp, list):  # it is only ever a shortcut
        stamp = []
    is_stale = False
    for number, shard in enumerate(shards):
        file = folder / _name(number)
        n_bytes = shard["tokens"] * dtype.itemsize
        try:
            stat = _stat(file)
            if number < len(stamp) and stamp[number] == stat and stat[0] == n_bytes:
                continue
            is_stale = True
            same = stat[0] == n_bytes and hash_ids(np.fromfile(file, dtype)) == shard["sha256"]
        except (OSError, ValueError) as error:
            raise ParibusError(f"{file} cannot be read ({error}); {way_out}") from None
        if not same:
            raise ParibusError(f"{file} is not the shard that was written; {way_out}")
    if is_stale:  # copied, or touched, and found good
        with contextlib.suppress(ParibusError):
            _write_stamp(folder, len(shards))
