"""Repetitions: exact and near duplicates of documents or passages, and shared runs of tokens.

Near duplicates are found by MinHash and locality-sensitive hashing (Broder 1997; Leskovec,
Rajaraman & Ullman, Mining of Massive Datasets, chapter 3), with rensa, and every candidate is
verified by its true Jaccard similarity: no pair is reported that is not one. Similarity of whole
documents misses a short document inside a long one; runs of tokens do not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paribus.engine.data.pieces import Document
from paribus.engine.data.tokens import CHUNK_TOKENS, Tokens, chunks, in_order

RUN_TOKENS = 50
"""As in Lee et al. 2022 (Deduplicating Training Data Makes Language Models Better). Of characters,
some nine words: chance and idiom end well before (in Shakespeare, between 30 and 40)."""

_BASE = 0x9E3779B97F4A7C15  # odd: no token's share is shifted out
MOST_BITS = 24  # of the table that sorts out runs: 16 MiB
BLOCK = 2**15  # hashes that are worked on at once: what a core's cache holds


def in_training(
    train: Tokens,
    validation: np.ndarray | Sequence[np.ndarray],
    length: int = RUN_TOKENS,
) -> np.ndarray:
    """Return [n_validation] whether a token is part of a run that `train` has too, bool.

    Of several arrays, one after the other, no run is of two. A run is `length` consecutive tokens,
    as they are: case and whitespace count, and an end of document is a token like others. Runs are
    compared by 64-bit hashes: a false match is as likely as n_train x n_validation in 2^64, 1 in
    10^8 for a text of 1 MB. The training text is streamed: memory grows with the validation text.
    """
    blocks = [validation] if isinstance(validation, np.ndarray) else validation
    ids = np.concatenate(blocks)
    if min(len(train), len(ids)) < length:
        return np.zeros(len(ids), bool)
    hashes, place = np.unique(run_hashes(ids, length), return_inverse=True)
    opens = Runs(hashes, length).found_in(train)[place]
    for edge in np.cumsum([len(block) for block in blocks])[:-1].tolist():
        opens[max(edge - length + 1, 0) : edge] = False
    # A token is covered where more runs began than ended.
    change = np.zeros(len(opens) + length, np.int64)
    change[: len(opens)] += opens
    change[length:] -= opens
    return np.cumsum(change[:-1]) > 0


class Runs:
    """Distinct runs of `length` ids, [m] by their hashes in order, to be found in texts."""

    def __init__(self, hashes: np.ndarray, length: int) -> None:
        self.hashes, self.length = hashes, length
        # [2^bits] whether any hash starts with these bits. Nearly no run of another text is one of
        # these, and this tells so at a fraction of the cost of a search.
        bits = min(max(len(hashes).bit_length() + 6, 16), MOST_BITS)
        self.table = np.zeros(2**bits, bool)
        self.shift = np.uint64(64 - bits)
        self.table[hashes >> self.shift] = True

    @classmethod
    def among(cls, text: Tokens, length: int) -> Runs:
        """Return the runs of a text that is read in parts; the hashes alone are kept."""
        found = [
            np.unique(run_hashes(ids, length))
            for ids in chunks(text, CHUNK_TOKENS, overlap=length - 1)
            if len(ids) >= length
        ]
        return cls(np.unique(np.concatenate([np.zeros(0, np.uint64), *found])), length)

    def found_in(self, text: Tokens) -> np.ndarray:
        """Return [m] whether `text` has each of these runs, bool."""
        there = np.zeros(len(self.hashes), bool)
        for _, which in self._matches(text):
            there[which] = True
        return there

    def marked(self, text: Tokens) -> Iterator[tuple[int, int]]:
        """Yield (first id, the one after the last) of what lies in these runs, in order and apart.

        Stretches that touch are one.
        """
        begin = end = -1
        for places, _ in self._matches(text):
            for place in places.tolist():
                if place > end:
                    if end >= 0:
                        yield begin, end
                    begin = place
                end = place + self.length
        if end >= 0:
            yield begin, end

    def _matches(self, text: Tokens) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (where runs of `text` begin that are among these, which they are) by chunk."""

        def look(start: int, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            places, found = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
            for at, hashes in _in_blocks(ids, self.length):
                # Indices that numpy need not convert, and need not check: none is too large.
                first = (hashes >> self.shift).view(np.int64)
                here = np.flatnonzero(self.table.take(first, mode="clip"))
                places.append(here + (start + at))
                found.append(hashes[here])
            hashes = np.concatenate(found)
            which = np.searchsorted(self.hashes, hashes).clip(max=len(self.hashes) - 1)
            same = self.hashes[which] == hashes
            return np.concatenate(places)[same], which[same]

        parts = enumerate(chunks(text, CHUNK_TOKENS, overlap=self.length - 1))
        tasks = ((n * CHUNK_TOKENS, ids) for n, ids in parts if len(ids) >= self.length)
        cores = os.cpu_count() or 1
        if len(self.hashes):
            with ThreadPoolExecutor(cores) as pool:
                yield from in_order(pool, look, tasks, ahead=cores)


def run_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """Return [n - length + 1] a polynomial in _BASE, modulo 2^64, of every run of `length` ids.

    The hash of 2 k ids is made of two of k, so that 50 take seven passes over the text.
    """
    found = np.empty(len(ids) - length + 1, np.uint64)
    for at, hashes in _in_blocks(ids, length):
        found[at : at + len(hashes)] = hashes
    return found


def _in_blocks(ids: np.ndarray, length: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (the place of the first, the hashes) of BLOCK runs after the other."""
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


SHINGLE_CHARACTERS = 9
"""Long enough that unrelated texts of any length share few (Leskovec et al., section 3.2.2), and
without words, so that it holds in any script."""

NEAR_DUPLICATE_JACCARD = 0.8
"""The customary threshold. A changed character changes 9 shingles, so that texts are near
duplicates up to about one such change in 80 characters."""

MIN_PASSAGE_CHARACTERS = 100
"""Headings, refrains and signatures recur in every text. From 89 characters on, a passage with one
character changed is still a near duplicate."""

# A pair of similarity s shares a band with probability 1 - (1 - s^5)^24: at the threshold all but
# 1 in 13,000 pairs are found; at 0.1, already much for unrelated texts, 1 in 4,000 is compared.
N_BANDS, ROWS_PER_BAND = 24, 5
# Of the permutations alone: fixed, so that a text has one answer.
HASH_SEED = 1

MOST_KEPT = 64  # texts whose shingles are kept for the next comparison

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Duplicates:
    """Counts of units of text that repeat others, to be divided by `units` for rates.

    A unit is an exact duplicate of another with the same characters, and a near duplicate where
    their shingles have a Jaccard similarity of at least NEAR_DUPLICATE_JACCARD; exact ones are
    near ones too. Shingles ignore case, and count any run of whitespace as one space.

    Attributes:
        units: all units.
        exact: units that are an exact duplicate of an earlier one.
        near: units beyond the first in each cluster of near duplicates, where a cluster is whatever
            a chain of near-duplicate pairs joins: what would go if one of each cluster were kept.
            Without the chains, the count would depend on the order of the units.
        validation_units: units of the validation split.
        leaked_exact: of these, those with an exact duplicate in the training split.
        leaked_near: of these, those with a near duplicate in the training split; no chains.
    """

    units: int
    exact: int
    near: int
    validation_units: int
    leaked_exact: int
    leaked_near: int


def passages(document: str) -> Iterator[tuple[int, str]]:
    """Yield the passages of `document`, parted by blank lines: (where it starts, its text).

    Passages shorter than MIN_PASSAGE_CHARACTERS are left out, and so is whitespace around one.
    """
    start = 0
    for text, is_passage in segments(document):
        if is_passage:
            yield start + len(text) - len(text.lstrip()), text.strip()
        start += len(text)


def segments(document: Document) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is a passage): all of `document` between blank lines.

    Each has the blank line after it: joined again they are the document. Memory grows with the
    longest one.
    """
    waiting = ""
    for text in (document,) if isinstance(document, str) else document:
        # A blank line begins at the last end of a line at the earliest: others were looked at.
        at = waiting.rfind("\n")
        at = len(waiting) if at < 0 else at
        waiting, start = waiting + text, 0
        for found in _BLANK_LINE.finditer(waiting, at):
            yield waiting[start : found.end()], _is_passage(waiting[start : found.start()])
            start = found.end()
        waiting = waiting[start:]
    if waiting:
        yield waiting, _is_passage(waiting)


def _is_passage(text: str) -> bool:
    return len(text.strip()) >= MIN_PASSAGE_CHARACTERS


def count_duplicates(units: Sequence[str], in_validation: Sequence[bool]) -> Duplicates:
    """Duplicates among `units`, and between those of the validation split and the others.

    `in_validation` says of each unit whether it is of the validation split, the others being of the
    training split. The counts do not depend on the order of the units. Time grows with the text,
    and with the square of the number of units that are all similar and all different: of 2,000
    such, made from one template, it is ten seconds.
    """
    training = {unit for unit, held in zip(units, in_validation, strict=True) if not held}
    validation = [unit for unit, held in zip(units, in_validation, strict=True) if held]

    # Equal texts are one from here on, so that a text repeated n times makes no n^2 pairs.
    plain = {unit: normalized(unit) for unit in dict.fromkeys(units)}
    texts = list(dict.fromkeys(plain.values()))
    pairs = near_duplicate_pairs(texts)
    index = {text: i for i, text in enumerate(texts)}
    trained = np.zeros(len(texts), bool)
    trained[[index[plain[unit]] for unit in training]] = True
    leaks = trained.copy()
    leaks[pairs[trained[pairs[:, 1]], 0]] = True
    leaks[pairs[trained[pairs[:, 0]], 1]] = True
    return Duplicates(
        units=len(units),
        exact=len(units) - len(plain),
        near=len(units) - _n_clusters(len(texts), pairs),
        validation_units=len(validation),
        leaked_exact=sum(unit in training for unit in validation),
        leaked_near=sum(bool(leaks[index[plain[unit]]]) for unit in validation),
    )


def near_duplicate_pairs(texts: Sequence[str]) -> np.ndarray:
    """Return [P, 2] pairs i < j of near duplicates among `texts`, as they are, int64.

    Their Jaccard similarity is computed, not estimated; what locality-sensitive hashing misses is
    1 pair in 13,000 at the threshold and fewer above. The same texts have the same answer on every
    run.
    """
    # Here, since who only reads a finished study has no use for it.
    from rensa import RMinHash, RMinHashLSH  # pyright: ignore[reportAttributeAccessIssue]

    n_hashes = N_BANDS * ROWS_PER_BAND
    sketches = RMinHash.from_token_sets(map(_shingles, texts), n_hashes, HASH_SEED)
    index = RMinHashLSH(NEAR_DUPLICATE_JACCARD, n_hashes, N_BANDS)
    index.insert_many(sketches)
    flagged = [j for j, flag in enumerate(index.query_duplicate_flags(sketches)) if flag]

    @lru_cache(MOST_KEPT)
    def shingles(i: int) -> np.ndarray:
        codes = np.frombuffer(texts[i].encode("utf-32-le"), np.uint32)
        # Distinct 64-bit hashes, in order; two shingles have the same by chance in 1 of 10^19.
        return np.unique(run_hashes(codes, min(SHINGLE_CHARACTERS, len(codes))))

    pairs = []
    for j in flagged:
        in_j = shingles(j)
        for i in sorted(i for i in index.query(sketches[j]) if i < j):
            in_i = shingles(i)
            shared = len(np.intersect1d(in_i, in_j, assume_unique=True))
            if shared / (len(in_i) + len(in_j) - shared) >= NEAR_DUPLICATE_JACCARD:
                pairs.append((i, j))
    return np.array(pairs, np.int64).reshape(-1, 2)


def _shingles(text: str) -> list[str]:
    """Return every run of SHINGLE_CHARACTERS characters; of a shorter text, the whole of it."""
    last = max(len(text) - SHINGLE_CHARACTERS, 0)
    return [text[i : i + SHINGLE_CHARACTERS] for i in range(last + 1)]


def normalized(text: str) -> str:
    """Return `text` as near duplicates are compared: without case, white space as single spaces."""
    # Lone surrogates, which a text read leniently may hold, have no UTF-8 for rensa to hash.
    return " ".join(text.split()).casefold().encode("utf-8", "replace").decode("utf-8")


def _n_clusters(n: int, pairs: np.ndarray) -> int:
    # Here, since every worker imports this room and none counts clusters.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[0]
