"""A text as token ids [n]: an array in memory, or shards on disk.

Readers see no difference, and the digest is the same.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from paribus.digests import digest
from paribus.errors import ParibusError

B = TypeVar("B")

SHARD_TOKENS = 2**24
"""Of a shard, and of what a digest is a hash of; a text of no more has the digest of its ids."""
CHUNK_TOKENS = 2**20  # read at a time by what goes through a whole text
HASHED_AT_ONCE = 2**16  # what a core's cache holds


class Tokens(Protocol):
    """A row of token ids [n]: a NumPy array, or `ShardedTokens`.

    A slice gives an array. See `windows` for many of them.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, places: Any, /) -> Any: ...


@dataclass(frozen=True)
class Shards:
    """Files of little-endian ids, each of `shard_tokens` of them; the last may have fewer.

    A file is opened for each read, so a text of any length is opened at once, takes none of the
    process's memory, and no more files than one. (Mapped files were measured too: the first touch
    of a page took a hundred times as long as a read.)
    """

    files: tuple[Path, ...]
    dtype: np.dtype[Any]
    shard_tokens: int

    def read(self, number: int, start: int, into: np.ndarray) -> None:
        """Fill `into` with the ids of shard `number` from `start` on."""
        file = self.files[number]
        try:
            with open(file, "rb", buffering=0) as opened:
                opened.seek(start * self.dtype.itemsize)
                n = opened.readinto(into.view(np.uint8).data)
        except OSError as error:
            raise ParibusError(f"cannot read {file}: {error.strerror}") from None
        if n != into.nbytes:
            raise ParibusError(
                f"{file} ended early; delete the folder {file.parent} to have the text tokenized "
                "again"
            )


class _View:
    """A row of ids that is read when a slice of it is asked for, as an array is sliced."""

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds every id."""
        raise NotImplementedError

    def _between(self, start: int, stop: int) -> np.ndarray:
        raise NotImplementedError

    @overload
    def __getitem__(self, places: int | np.integer[Any]) -> np.integer[Any]: ...
    @overload
    def __getitem__(self, places: slice) -> np.ndarray: ...
    def __getitem__(self, places: Any) -> Any:
        if not isinstance(places, slice):
            if not -len(self) <= places < len(self):
                raise IndexError(f"place {places} of {len(self)} tokens")
            return self._between(places % len(self), places % len(self) + 1)[0]
        start, stop, step = places.indices(len(self))
        if step < 1:
            raise IndexError("these tokens are read forwards; reverse the slice that they give")
        return self._between(start, max(stop, start))[::step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype)


@dataclass(frozen=True)
class ShardedTokens(_View):
    """Token ids `start` to `stop` of `shards`."""

    shards: Shards
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the shards."""
        return self.shards.dtype

    def part(self, start: int, stop: int) -> ShardedTokens:
        """Return tokens `start` to `stop` of these, without reading any."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return ShardedTokens(self.shards, self.start + start, self.start + max(stop, start))

    def _between(self, start: int, stop: int) -> np.ndarray:
        found = np.empty(stop - start, self.dtype)
        size, at = self.shards.shard_tokens, start
        while at < stop:
            number, offset = divmod(self.start + at, size)
            n = min(size - offset, stop - at)
            self.shards.read(number, offset, found[at - start : at - start + n])
            at += n
        return found


@dataclass(frozen=True)
class JoinedTokens(_View):
    """Several texts, one after the other, without a copy of any."""

    parts: tuple[Tokens, ...]

    @cached_property
    def edges(self) -> np.ndarray:
        """[parts + 1] where each begins, and where the last ends."""
        return np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self.edges[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The narrowest type that holds the ids of all parts."""
        return np.result_type(*(part.dtype for part in self.parts))  # type: ignore[attr-defined]

    def _between(self, start: int, stop: int) -> np.ndarray:
        first = max(int(np.searchsorted(self.edges, start, "right")) - 1, 0)
        found = [np.zeros(0, self.dtype)]
        for edge, one in zip(self.edges[first:].tolist(), self.parts[first:], strict=False):
            if edge >= stop:
                break
            found.append(one[max(start - edge, 0) : stop - edge])
        return np.concatenate(found)


def join(parts: Sequence[Tokens]) -> Tokens:
    """Return `parts` as one text: an array of arrays, and else a view."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(one, np.ndarray) for one in parts):
        return np.concatenate(parts)  # type: ignore[arg-type]
    return JoinedTokens(tuple(parts))


def chunks(tokens: Tokens, size: int = CHUNK_TOKENS, overlap: int = 0) -> Iterator[np.ndarray]:
    """Yield `tokens` in arrays of at most `size`, and up to `overlap` tokens of the next."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size + overlap]


def windows(tokens: Tokens, starts: np.ndarray, length: int) -> np.ndarray:
    """Return [W, length] the `length` tokens from each of `starts` [W] on."""
    if not isinstance(tokens, np.ndarray):
        return np.stack([tokens[start : start + length] for start in starts.tolist()])
    return tokens[starts[:, None] + np.arange(length)]


def part(tokens: Tokens, start: int, stop: int) -> Tokens:
    """Tokens `start` to `stop`; of shards, none is read."""
    return tokens.part(start, stop) if isinstance(tokens, ShardedTokens) else tokens[start:stop]


def hash_ids(ids: np.ndarray) -> str:
    """SHA-256 of token ids as 32-bit little-endian numbers, in whatever narrower type they are."""
    dtype = "<u8" if ids.itemsize > 4 else "<u4"
    hashed = hashlib.sha256()
    for start in range(0, len(ids), HASHED_AT_ONCE):
        hashed.update(ids[start : start + HASHED_AT_ONCE].astype(dtype).data)
    return hashed.hexdigest()


def combined(hashes: Sequence[str]) -> str:
    """Return the digest of a text from the hashes of its stretches of SHARD_TOKENS tokens."""
    return hashes[0] if len(hashes) == 1 else digest(list(hashes))


def tokens_digest(tokens: Tokens, known: Sequence[str] = ()) -> str:
    """Return the digest of `tokens`, the same however they are stored and by how many made.

    `known` are the hashes of its first stretches of SHARD_TOKENS tokens, where they are known.
    """
    starts = range(0, max(len(tokens), 1), SHARD_TOKENS)[len(known) :]
    with ThreadPoolExecutor(max(min(len(starts), 4), 1)) as pool:
        found = pool.map(lambda start: hash_ids(tokens[start : start + SHARD_TOKENS]), starts)
        return combined([*known, *found])


def in_order(
    pool: ThreadPoolExecutor, do: Callable[..., B], tasks: Iterable[tuple[Any, ...]], ahead: int
) -> Iterator[B]:
    """Yield `do(*task)` of every task, by the pool and in order; `ahead` wait at most."""
    waiting: deque[Future[B]] = deque()
    for task in tasks:
        waiting.append(pool.submit(do, *task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
