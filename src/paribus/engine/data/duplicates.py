"""Detection and removal of duplicate text within a corpus, and between training and held-out text.

Two texts are near duplicates if the fraction of equal values in their MinHash sketches is at least
NEAR_DUPLICATE_JACCARD (Broder 1997; Lee et al. 2022); rensa's locality-sensitive hashing finds
candidates. This similarity misses a short text inside a long document, so shared sequences of
RUN_TOKENS tokens ("runs") are also detected.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from paribus.engine.data.tokens import CHUNK_TOKENS, Tokens, chunks

RUN_TOKENS = 50
"""Number of consecutive tokens or bytes in a compared run.

The value is that of Lee et al. 2022 (Deduplicating Training Data Makes Language Models Better). 50
characters are about nine words, more than texts share by chance (30 to 40 in Shakespeare).
"""
SHINGLE_CHARACTERS = 9
NEAR_DUPLICATE_JACCARD = 0.8
MIN_PASSAGE_CHARACTERS = 100
"""Minimum length of a compared passage, to exclude headings, refrains and signatures."""
BANDS, HASHES, HASH_SEED = 24, 120, 1  # finds all but 1 in 13,000 pairs at the threshold

_BASE = 0x9E3779B97F4A7C15  # odd: no token's share is shifted out
_SEGMENT = re.compile(r".+?(?:\n\s*\n|\Z)", re.DOTALL)
_LINE = re.compile(r"[^\n]{1,1000}\n?|\n")
END = b"\xff"  # of a document; UTF-8 has no such byte
NOT_UTF8 = 0xFE


def passages(document: str) -> list[str]:
    """Split a document into passages at blank lines, dropping passages that are too short."""
    texts = (segment.strip() for segment in _SEGMENT.findall(document))
    return [text for text in texts if len(text) >= MIN_PASSAGE_CHARACTERS]


def sketches(texts: Iterable[str]) -> list[Any]:
    """Return a MinHash sketch of each text, ignoring case and whitespace differences."""
    # Imported here, since reading a finished study does not need it.
    from rensa import RMinHash  # type: ignore

    return RMinHash.from_token_sets(map(_shingles, texts), HASHES, HASH_SEED)


def _shingles(text: str) -> list[str]:
    text = " ".join(text.split()).casefold()
    last = max(len(text) - SHINGLE_CHARACTERS, 0)
    return [text[i : i + SHINGLE_CHARACTERS] for i in range(last + 1)]


class NearIndex:
    """Index of MinHash sketches for near-duplicate lookup."""

    def __init__(self) -> None:
        from rensa import RMinHashLSH  # type: ignore

        self._index = RMinHashLSH(NEAR_DUPLICATE_JACCARD, HASHES, BANDS)
        self._sketches: list[Any] = []

    def has(self, sketch: Any) -> bool:
        """Return whether the index contains a near duplicate of `sketch`."""
        candidates = (self._sketches[key] for key in self._index.query(sketch))
        return any(sketch.jaccard(each) >= NEAR_DUPLICATE_JACCARD for each in candidates)

    def add(self, sketch: Any) -> None:
        """Add `sketch` to the index."""
        self._index.insert(len(self._sketches), sketch)
        self._sketches.append(sketch)


def count_near(training: Iterable[str], validation: Iterable[str]) -> int:
    """Count the validation texts that are near duplicates of a training text."""
    index = NearIndex()
    for sketch in sketches(dict.fromkeys(training)):
        index.add(sketch)
    return sum(map(index.has, sketches(validation)))


def run_hashes(ids: np.ndarray) -> np.ndarray:
    """Return a polynomial hash modulo 2^64 of each token run in `ids`, [n - RUN_TOKENS + 1] uint64.

    The result is empty if `ids` has fewer than RUN_TOKENS elements.
    """
    if len(ids) < RUN_TOKENS:
        return np.zeros(0, np.uint64)
    powers = np.uint64(_BASE) ** np.arange(RUN_TOKENS, dtype=np.uint64)[::-1]
    return sliding_window_view(ids.astype(np.uint64), RUN_TOKENS) @ powers


def runs_of(texts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the sorted hashes of all runs in `texts`.

    The probability of a false match between two texts is the product of their numbers of runs,
    divided by 2^64, for example 1 in 20 million for two texts of a million runs.
    """
    return np.sort(np.concatenate([np.zeros(0, np.uint64), *map(run_hashes, texts)]))


def found_in(runs: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return a boolean array that is True for each run of `ids` contained in `runs`.

    Args:
        runs: sorted hashes from `runs_of`.
        ids: token ids or bytes.
    """
    if len(ids) > CHUNK_TOKENS + RUN_TOKENS:
        parts = chunks(ids, CHUNK_TOKENS, overlap=RUN_TOKENS - 1)
        return np.concatenate([found_in(runs, part) for part in parts])
    hashes = run_hashes(ids)
    before, until = (np.searchsorted(runs, hashes, side) for side in ("left", "right"))
    return until > before


def count_in_training(train: Tokens, validation: np.ndarray) -> int:
    """Count the tokens in `validation` that belong to a run contained in `train`."""
    is_trained = np.zeros(max(len(validation) - RUN_TOKENS + 1, 0), bool)
    for ids in chunks(train, CHUNK_TOKENS, overlap=RUN_TOKENS - 1):
        is_trained |= found_in(runs_of([ids]), validation)
    return len(np.unique(np.flatnonzero(is_trained)[:, None] + np.arange(RUN_TOKENS)))


def repetitions(documents: Iterable[str], *, is_near: bool) -> tuple[list[bool], dict[str, int]]:
    """Find the segments of `documents` that repeat earlier text.

    A segment is the text between blank lines. If a whole document repeats an earlier one, all its
    segments count as repeated. Short segments are not compared individually.

    Args:
        documents: texts, in order.
        is_near: whether a near duplicate of an earlier segment counts as repeated.

    Returns a flag for each segment, True if repeated, and the total and dropped numbers of
    documents, passages and bytes.
    """
    repeated, index = list[bool](), NearIndex()
    documents_seen, passages_seen = set[bytes](), set[bytes]()
    counts = dict.fromkeys(("documents", "passages", "bytes"), 0)
    dropped = dict.fromkeys(counts, 0)
    for document in documents:
        segments = _SEGMENT.findall(document)
        flags = [not _is_new(document, documents_seen)] * len(segments)
        for i, segment in enumerate([] if all(flags) else segments):
            if len(segment.strip()) >= MIN_PASSAGE_CHARACTERS:
                flags[i] = not _is_new(segment.strip(), passages_seen)
                if is_near and not flags[i]:
                    (sketch,) = sketches([segment])
                    flags[i] = index.has(sketch)
                    if not flags[i]:
                        index.add(sketch)
                counts["passages"] += 1
                dropped["passages"] += flags[i]
        if not "".join(drop(segments, flags)).strip():
            flags = [True] * len(flags)
        sizes = [len(segment.encode()) for segment in segments]
        counts["documents"] += 1
        dropped["documents"] += all(flags)
        counts["bytes"] += sum(sizes)
        dropped["bytes"] += sum(size for size, flag in zip(sizes, flags, strict=True) if flag)
        repeated += flags
    return repeated, counts | {f"{name}_dropped": n for name, n in dropped.items()}


def drop(segments: Iterable[str], repeated: Iterable[bool]) -> Iterator[str]:
    """Yield the segments that are not flagged as repeated."""
    return (segment for segment, flag in zip(segments, repeated, strict=False) if not flag)


def drop_repetitions(documents: Iterable[str], repeated: Iterable[bool]) -> Iterator[str]:
    """Yield `documents` without repeated segments, skipping documents that become empty."""
    flags = iter(repeated)
    for document in documents:
        if text := "".join(drop(_SEGMENT.findall(document), flags)):
            yield text


def _is_new(text: str, seen: set[bytes]) -> bool:
    """Add the hash of `text` to `seen`, and return whether it was new."""
    n = len(seen)
    seen.add(hashlib.blake2b(text.encode(), digest_size=16).digest())
    return len(seen) > n


def drop_runs(documents: Iterable[str], runs: np.ndarray) -> Iterator[str]:
    """Yield `documents`, dropping each line that contains the end of a token run in `runs`.

    A line of more than 1,000 characters is treated as several lines.

    Args:
        documents: texts, in order.
        runs: sorted hashes of byte runs, from `runs_of`.
    """
    tail = np.zeros(0, np.uint8)  # of what was kept: the longest part of a run
    for text in documents:
        lines = _LINE.findall(text)
        lengths = np.array([len(line.encode()) for line in lines], int)
        is_ended = np.array([line.endswith("\n") for line in lines], bool)
        data = np.concatenate([tail, np.frombuffer(text.encode(), np.uint8)])
        first_bytes = np.flatnonzero(found_in(runs, data))
        while len(first_bytes):
            line_ends = len(tail) + np.cumsum(lengths)
            is_cut = np.zeros(len(lengths), bool)
            is_cut[np.searchsorted(line_ends, first_bytes + RUN_TOKENS - 1, side="right")] = True
            data = data[np.append(np.ones(len(tail), bool), np.repeat(~is_cut, lengths))]
            # Only where lines were cut, text has new neighbours and can complete another run.
            joints = len(tail) + np.cumsum(np.where(is_cut, 0, lengths))[is_cut]
            first_bytes = _runs_across(np.unique(joints), data, runs)
            lengths, is_ended = lengths[~is_cut], is_ended[~is_cut]
            # A part of a long line that lost its end and an empty line after it are one line.
            is_joined = np.zeros(len(lengths), bool)
            is_joined[:-1] = ~is_ended[:-1] & is_ended[1:] & (lengths[1:] == 1)
            lengths, is_ended = lengths + is_joined, is_ended | is_joined
            is_left = ~np.roll(is_joined, 1)
            lengths, is_ended = lengths[is_left], is_ended[is_left]
        if len(lengths):
            yield data[len(tail) :].tobytes().decode()
            tail = np.append(data, np.frombuffer(END, np.uint8))[-RUN_TOKENS + 1 :]


def _runs_across(joints: np.ndarray, data: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Return where runs contained in `runs` begin that cross one of the positions `joints`."""
    padding = np.full(RUN_TOKENS, NOT_UTF8, np.uint8)
    padded = np.concatenate([padding, data, padding])
    places = joints[:, None] + np.arange(-RUN_TOKENS + 1, RUN_TOKENS)
    contexts = padded[places + RUN_TOKENS]
    contexts[:, -1] = NOT_UTF8  # between two contexts
    return places.ravel()[np.flatnonzero(found_in(runs, contexts.ravel()))]
