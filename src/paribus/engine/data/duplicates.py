"""Exact and near duplicates among units of text: documents, or the passages of documents.

Near duplicates are found by MinHash and locality-sensitive hashing (Broder 1997; Leskovec,
Rajaraman & Ullman, Mining of Massive Datasets, chapter 3), with rensa, and every candidate is
verified by its true Jaccard similarity: no pair is reported that is not one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paribus.engine.data.leakage import run_hashes
from paribus.engine.data.pieces import Document

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

MOST_SHINGLES = 2**21  # that are kept for the next comparison: 16 MiB

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Duplicates:
    """How many units of text repeat others: counts, to be divided by `units` for rates.

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
    """The passages of `document`, parted by blank lines: (where it starts, its text).

    Passages shorter than MIN_PASSAGE_CHARACTERS are left out, and so is whitespace around one.
    """
    start = 0
    for text, is_passage in segments(document):
        if is_passage:
            yield start + len(text) - len(text.lstrip()), text.strip()
        start += len(text)


def segments(document: Document) -> Iterator[tuple[str, bool]]:
    """All of `document` between blank lines, each with the one after it; whether it is a passage.

    Joined again they are the document. Memory grows with the longest one.
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
    """[P, 2] pairs i < j of near duplicates among `texts`, which are taken as they are, int64.

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
    shingles = _Shingles(texts)
    pairs = []
    for j in flagged:
        in_j = shingles[j]
        for i in sorted(i for i in index.query(sketches[j]) if i < j):
            in_i = shingles[i]
            shared = len(np.intersect1d(in_i, in_j, assume_unique=True))
            if shared / (len(in_i) + len(in_j) - shared) >= NEAR_DUPLICATE_JACCARD:
                pairs.append((i, j))
    return np.array(pairs, np.int64).reshape(-1, 2)


class _Shingles:
    """The distinct shingles of texts, as 64-bit hashes in order; some are kept for the next time.

    Two shingles have the same hash by chance in 1 of 10^19 pairs.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._kept: dict[int, np.ndarray] = {}
        self._size = 0

    def __getitem__(self, i: int) -> np.ndarray:
        if i not in self._kept:
            codes = np.frombuffer(self._texts[i].encode("utf-32-le"), np.uint32)
            found = np.unique(run_hashes(codes, min(SHINGLE_CHARACTERS, len(codes))))
            if self._size + len(found) > MOST_SHINGLES:
                self._kept, self._size = {}, 0
            self._kept[i] = found
            self._size += len(found)
        return self._kept[i]


def _shingles(text: str) -> list[str]:
    """Every run of SHINGLE_CHARACTERS characters; of a shorter text, the whole of it."""
    last = max(len(text) - SHINGLE_CHARACTERS, 0)
    return [text[i : i + SHINGLE_CHARACTERS] for i in range(last + 1)]


def normalized(text: str) -> str:
    """`text` as near duplicates are compared: without case, white space as single spaces."""
    # Lone surrogates, which a text read leniently may hold, have no UTF-8 for rensa to hash.
    return " ".join(text.split()).casefold().encode("utf-8", "replace").decode("utf-8")


def _n_clusters(n: int, pairs: np.ndarray) -> int:
    # Here, since every worker imports this room and none counts clusters.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[0]
