"""Deterministic selection of the token windows in each training batch.

Batch t is a pure function of (seed, t). It does not depend on the arm, the device, the number of
workers or the frequency of evaluation. A running digest verifies this.

Axes: B windows in a batch, T inputs in a window, n available windows, S sources in a mixture, M
windows in a period of a mixture's schedule.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from paribus.engine.data.tokens import Tokens, chunks, windows
from paribus.engine.setting.data import MIXTURE_PARTS
from paribus.errors import ParibusError
from paribus.rng import stream

if TYPE_CHECKING:
    from paribus.engine.setting import Setting

ROUNDS = 8


@dataclass(frozen=True)
class Windows:
    """Training windows of a text, and the order in which they are used.

    A window has seq_len + 1 tokens: seq_len inputs, and the same number of targets, shifted by one.
    Every step trains on exactly batch_size x seq_len targets, for any packing and order.

    Attributes:
        n_tokens: number of tokens in the training text.
        seq_len: number of inputs in a window, T.
        order: `sampled` samples with replacement; `epoch` uses every window once per epoch.
        places: [n] allowed window starts. None allows any token (`sampled`), or every seq_len-th
            token (`epoch`).
    """

    n_tokens: int
    seq_len: int
    order: Literal["sampled", "epoch"] = "sampled"
    places: Tokens | None = None

    def __len__(self) -> int:
        """Return the number of available windows."""
        if self.places is not None:
            return len(self.places)
        if self.order == "sampled":
            return self.n_tokens - self.seq_len
        return (self.n_tokens - 1) // self.seq_len

    def starts(self, seed: int, t: int, batch_size: int) -> np.ndarray:
        """Return the window starts of batch `t` for `seed`, [B] int64."""
        return self.chosen(seed, t * batch_size + np.arange(batch_size), t)

    def chosen(self, seed: int, items: np.ndarray, t: int, *source: str) -> np.ndarray:
        """Return the window starts at the positions `items` in training order, [B] int64.

        Args:
            seed: seed of the trial.
            items: 0-based positions, counted from the start of training.
            t: 0-based index of the batch.
            source: name of the text, if it belongs to a mixture.
        """
        n = len(self)
        if self.order == "sampled":
            drawn = stream(seed, "batches", *source, position=t).integers(n, size=len(items))
        else:
            drawn = in_epochs(items, n, seed, *source)
        if self.places is not None:
            return self.places[drawn].astype(np.int64)
        return drawn if self.order == "sampled" else drawn * self.seq_len


def in_epochs(items: np.ndarray, n: int, seed: int, *source: str) -> np.ndarray:
    """Return the window index for each position in training order, for epochs of `n` windows.

    Position i is number i mod n in epoch i div n. The result is [B] int64.
    """
    epochs, places = np.divmod(items, n)
    result = np.empty(len(items), np.int64)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        result[chosen] = permuted(places[chosen], n, seed, *source, int(epoch))
    return result


def permuted(places: np.ndarray, n: int, seed: int, *epoch: str | int) -> np.ndarray:
    """Apply an epoch's pseudorandom permutation of 0, ..., n - 1 to `places`, as int64.

    The permutation depends only on (seed, *epoch). It is a Feistel network (Luby & Rackoff 1988)
    over the next power of four, applied again while a result is not below n (cycle walking: Black &
    Rogaway 2002). Any slice of an epoch can be computed independently, without a table.
    """
    keys = stream(seed, "epoch", *epoch).integers(2**64, size=ROUNDS, dtype=np.uint64)
    half = max((max(n - 1, 1).bit_length() + 1) // 2, 1)
    result = _feistel(places.astype(np.uint64), half, keys)
    while (outside := result >= n).any():
        result[outside] = _feistel(result[outside], half, keys)
    return result.astype(np.int64)


def _feistel(x: np.ndarray, half: int, keys: np.ndarray) -> np.ndarray:
    """Permute integers of 2 * `half` bits with a Feistel network."""
    bits, mask = np.uint64(half), np.uint64(2**half - 1)
    left, right = x >> bits, x & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & mask)
    return left << bits | right


def _mixed(x: np.ndarray) -> np.ndarray:
    """Apply the finalizer of SplitMix64 (Steele, Lea & Flood 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def document_places(tokens: Tokens, end_of_document: int | None, seq_len: int) -> np.ndarray:
    """Return the starts of document-aligned windows, [n] uint64, in text order.

    A window begins with a document and is filled with the following documents. The next window
    begins with the first document that did not fit completely, so every document of up to
    seq_len + 1 tokens is complete in some window. A longer document is split every seq_len tokens.
    The last window ends with the text. Raises ParibusError if the text is a single document.
    """
    if end_of_document is None:
        raise ParibusError(
            "data.pack = 'documents' requires several documents, but the text is a single "
            "document; set data.pack = 'stream'",
            code="conflict",
        )
    last = len(tokens) - seq_len - 1
    start, before, places = 0, 0, []
    for end in ends_of(tokens, end_of_document):
        # Documents that end within the window that begins at `start` are whole in it.
        while end > start + seq_len + 1 and start < last:
            places.append(start)
            start = before if before > start else start + seq_len
        before = end
    return np.array([*places, min(start, last)], np.uint64)


def ends_of(tokens: Tokens, end_of_document: int) -> Iterator[int]:
    """Yield the position after each document, including a last one without an end token."""
    begin, end = 0, -1
    for ids in chunks(tokens):
        for end in (np.flatnonzero(ids == end_of_document) + begin + 1).tolist():
            yield end
        begin += len(ids)
    if end != len(tokens):
        yield len(tokens)


@dataclass(frozen=True)
class Mixture:
    """Training windows from several texts, in fixed proportions.

    Attributes:
        windows: windows of each text, keyed by source.
        shares: proportion of training windows from each source, summing to 1.
        offsets: start of each text in the concatenated training tokens, keyed by source.
    """

    windows: Mapping[str, Windows]
    shares: Mapping[str, float]
    offsets: Mapping[str, int]

    def starts(self, seed: int, t: int, batch_size: int) -> np.ndarray:
        """Return the window starts of batch `t` for `seed`, [B] int64."""
        sources = self.sources(t, batch_size)
        before = self.counts(t * batch_size)
        starts = np.empty(batch_size, np.int64)
        for s, (name, own) in enumerate(self.windows.items()):
            chosen = np.flatnonzero(sources == s)
            items = before[s] + np.arange(len(chosen))
            starts[chosen] = own.chosen(seed, items, t, name) + self.offsets[name]
        return starts

    def sources(self, t: int, batch_size: int) -> np.ndarray:
        """Return the source of each window in batch `t`, [B], as an index into `windows`."""
        items = t * batch_size + np.arange(batch_size)
        return self._schedule[items % len(self._schedule)]

    def counts(self, n: int) -> np.ndarray:
        """Return the number of windows from each source, [S], among the first `n` windows."""
        periods, rest = divmod(n, len(self._schedule))
        in_periods = periods * np.bincount(self._schedule, minlength=len(self.windows))
        return in_periods + np.bincount(self._schedule[:rest], minlength=len(self.windows))

    @property
    def _schedule(self) -> np.ndarray:
        parts = (round(self.shares.get(name, 0.0) * MIXTURE_PARTS) for name in self.windows)
        return _schedule(tuple(parts))


@cache
def _schedule(parts: tuple[int, ...]) -> np.ndarray:
    """Return the source index of each window in a period, [M].

    Among the first j windows, each source's count differs from its share of j by less than one
    (Tijdeman 1980, The chairman assignment problem). At each window, the eligible sources are those
    whose count would not exceed their share by more than d = 1 - 1/(2 S - 2). Of these, the source
    whose count would be the first to fall below its share by d is selected.

    Args:
        parts: proportion of each source, in units of 1 / sum(parts).
    """
    total = sum(parts)
    if len(parts) == 1:
        return np.zeros(1, np.int64)
    # With what is behind counted in windows x `total`, all of it is whole numbers.
    scale = 2 * len(parts) - 2
    drawn = [0] * len(parts)
    schedule = np.empty(total // math.gcd(*parts), np.int64)
    for j in range(1, len(schedule) + 1):
        behind = [part * j - n * total for part, n in zip(parts, drawn, strict=True)]
        able = [s for s, lag in enumerate(behind) if scale * lag >= total]
        chosen = min(able, key=lambda s: (((scale - 1) * total - scale * behind[s]) / parts[s], s))
        drawn[chosen] += 1
        schedule[j - 1] = chosen
    return schedule


FIRST_DIGEST = hashlib.sha256(b"paribus batches").hexdigest()


def starts_of_step(order: Windows | Mixture, seed: int, t: int, setting: Setting) -> np.ndarray:
    """Return the window starts of step `t` for `seed`, [B] int64.

    With a growing batch, a run uses the same windows in the same order as with a constant batch of
    the final size; only the step boundaries differ.
    """
    size = setting.training.largest_batch
    first, end = setting.windows_before(t), setting.windows_before(t + 1)
    batches = range(first // size, -(-end // size))
    starts = np.concatenate([order.starts(seed, k, size) for k in batches])
    return starts[first - batches[0] * size :][: end - first]


def batch(
    tokens: Tokens,
    seed: int,
    t: int,
    batch_size: int,
    seq_len: int,
    order: Windows | Mixture | None = None,
) -> np.ndarray:
    """Return batch `t` for `seed`, [batch_size, seq_len + 1] int64 token ids.

    Inputs are `[:, :-1]` and targets `[:, 1:]`. `order` selects the windows; by default, their
    starts are sampled uniformly with replacement, as in nanoGPT.
    """
    starts = (order or Windows(len(tokens), seq_len)).starts(seed, t, batch_size)
    return windows(tokens, starts, seq_len + 1).astype(np.int64)


def extend_digest(running: str, windows: np.ndarray) -> str:
    """Return the running digest, updated with the windows of the next batch."""
    return hashlib.sha256(bytes.fromhex(running) + windows.astype("<u4").tobytes()).hexdigest()
