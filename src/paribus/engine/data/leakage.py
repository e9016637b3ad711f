"""Containment: how much of the validation split stands word for word in the training split.

Similarity of whole documents misses a short document inside a long one; runs of tokens do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from paribus.engine.data.shards import in_order
from paribus.engine.data.tokens import CHUNK_TOKENS, Tokens, chunks

RUN_TOKENS = 50
"""As in Lee et al. 2022 (Deduplicating Training Data Makes Language Models Better). Of characters,
some nine words: chance and idiom end well before (in Shakespeare, between 30 and 40)."""

_BASE = 0x9E3779B97F4A7C15  # odd: no token's share is shifted out
MOST_BITS = 27  # of the table that sorts out runs: 16 MiB
STILL_LOOKED_FOR = 7 / 8  # with fewer of its runs left, a table is made anew
BLOCK = 2**15  # hashes that are worked on at once: what a core's cache holds


def in_training(
    train: Tokens,
    validation: np.ndarray | Sequence[np.ndarray],
    length: int = RUN_TOKENS,
) -> np.ndarray:
    """[n_validation] whether a validation token is part of a run that `train` has too, bool.

    Of several arrays, one after the other, no run is of two.

    A run is `length` consecutive tokens, as they are: case and whitespace count, and an end of
    document is a token like others. Runs are compared by 64-bit hashes: a false match is as likely
    as n_train x n_validation in 2^64, 1 in 10^8 for a text of 1 MB. The training text is streamed:
    memory grows with the validation text alone.
    """
    blocks = [validation] if isinstance(validation, np.ndarray) else validation
    ids = np.concatenate(blocks)
    if min(len(train), len(ids)) < length:
        return np.zeros(len(ids), bool)
    runs = Runs.of(ids, length)
    opens = runs.found_in(train)[runs.place]
    for edge in np.cumsum([len(block) for block in blocks])[:-1].tolist():
        opens[max(edge - length + 1, 0) : edge] = False
    return covered(opens, length)


def covered(opens: np.ndarray, length: int) -> np.ndarray:
    """[n + length - 1] what lies in a run of `length` that begins where `opens` [n] says."""
    change = np.zeros(len(opens) + length, np.int64)
    change[: len(opens)] += opens
    change[length:] -= opens
    return np.cumsum(change[:-1]) > 0


@dataclass(frozen=True)
class Runs:
    """Every run of `length` ids of a text, to be found in others.

    Attributes:
        hashes: [m] of the distinct runs, in order.
        place: [n] which of them begins at each id of the text.
        length: ids of a run.
        table: [2^bits / 8] whether any hash starts with these bits, eight answers a byte. Nearly no
            run of another text is one of these, and this tells so at a fraction of the cost of a
            search: it is small enough to stay in a cache.
    """

    hashes: np.ndarray
    place: np.ndarray
    length: int
    table: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, length: int) -> Runs:
        """The runs of a text `ids` [n]; none where it is shorter than one."""
        found = run_hashes(ids, length) if len(ids) >= length else np.zeros(0, np.uint64)
        hashes, place = np.unique(found, return_inverse=True)
        return cls(hashes, place, length, _starts(hashes, _bits(len(hashes))))

    @classmethod
    def among(cls, text: Tokens, length: int) -> Runs:
        """The same of a text that is read in parts, of which the hashes alone are kept.

        Where each run begins is not known of it: `place` is empty.
        """
        found = [
            np.unique(run_hashes(ids, length))
            for ids in chunks(text, CHUNK_TOKENS, overlap=length - 1)
            if len(ids) >= length
        ]
        hashes = np.unique(np.concatenate([np.zeros(0, np.uint64), *found]))
        return cls(hashes, np.zeros(0, np.int64), length, _starts(hashes, _bits(len(hashes))))

    def found_in(self, text: Tokens) -> np.ndarray:
        """[m] whether `text` has each of the distinct runs, bool."""
        there = np.zeros(len(self.hashes), bool)
        table, n_left = self.table.copy(), len(there)
        for _, which in self._matches(text, table):
            there[which] = True
            n = len(there) - int(there.sum())
            if n < n_left * STILL_LOOKED_FOR:
                # A text that repeats itself would else be searched for what it was found to have.
                # Whoever looks meanwhile finds one of them once more, or not: both are right.
                table[:] = _starts(self.hashes[~there], _bits(len(there)))
                n_left = n
        return there

    def marked(self, text: Tokens) -> Iterator[tuple[int, int]]:
        """(first id, the one after the last) of what lies in these runs, in order and apart."""
        begin = end = -1
        for places, _ in self._matches(text, self.table):
            for place in places.tolist():
                if place > end:
                    if end >= 0:
                        yield begin, end
                    begin = place
                end = place + self.length
        if end >= 0:
            yield begin, end

    def _matches(self, text: Tokens, table: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(where runs of `text` begin that are among these, which they are), chunk by chunk; those
        that `table`, of the form of `self.table`, knows."""
        shift = np.uint64(64 - _bits(len(self.hashes)))

        def look(start: int, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            places, found = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
            for at, hashes in _in_blocks(ids, self.length):
                first = hashes >> shift
                # Indices that numpy need not convert, and need not check: none is too large.
                eight = table.take((first >> np.uint64(3)).view(np.int64), mode="clip")
                eight >>= first.astype(np.uint8) & np.uint8(7)
                here = np.flatnonzero(eight & np.uint8(1))
                places.append(here + (start + at))
                found.append(hashes[here])
            hashes = np.concatenate(found)
            which = np.searchsorted(self.hashes, hashes).clip(max=len(self.hashes) - 1)
            same = self.hashes[which] == hashes
            return np.concatenate(places)[same], which[same]

        def parts() -> Iterator[tuple[int, np.ndarray]]:
            start = 0
            for ids in chunks(text, CHUNK_TOKENS, overlap=self.length - 1):
                if len(ids) >= self.length:
                    yield start, ids
                start += CHUNK_TOKENS

        cores = os.cpu_count() or 1
        if len(self.hashes):
            with ThreadPoolExecutor(cores) as pool:
                yield from in_order(pool, look, parts(), ahead=cores)


def _bits(n: int) -> int:
    """Of the table of n hashes."""
    return min(max(n.bit_length() + 6, 16), MOST_BITS)


def _starts(hashes: np.ndarray, bits: int) -> np.ndarray:
    """`Runs.table` of these."""
    table = np.zeros(2**bits, bool)
    table[hashes >> np.uint64(64 - bits)] = True
    return np.packbits(table, bitorder="little")


def run_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """[n - length + 1] a polynomial in _BASE, modulo 2^64, of every run of `length` ids.

    The hash of 2 k ids is made of two of k, so that 50 take seven passes over the text.
    """
    found = np.empty(len(ids) - length + 1, np.uint64)
    for at, hashes in _in_blocks(ids, length):
        found[at : at + len(hashes)] = hashes
    return found


def _in_blocks(ids: np.ndarray, length: int) -> Iterator[tuple[int, np.ndarray]]:
    """(the place of the first, the hashes) of BLOCK runs after the other."""
    for at in range(0, len(ids) - length + 1, BLOCK):
        part = ids[at : at + BLOCK + length - 1].astype(np.uint64)
        hashes, k, power = part, 1, _BASE  # of k ids, and _BASE^k
        for bit in bin(length)[3:]:
            hashes = _joined(hashes[:-k], power, hashes[k:])
            k, power = 2 * k, power * power % 2**64
            if bit == "1":
                hashes = _joined(hashes[:-1], _BASE, part[k:])
                k, power = k + 1, power * _BASE % 2**64
        yield at, hashes


def _joined(left: np.ndarray, power: int, right: np.ndarray) -> np.ndarray:
    """left * power + right, modulo 2^64."""
    joined = left * np.uint64(power)
    joined += right
    return joined
