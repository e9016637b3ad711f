"""Describe a corpus in tables, and the part of it that a trial consumed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from paribus.engine.data.dataset import Dataset
from paribus.engine.data.duplicates import (
    MIN_PASSAGE_CHARACTERS,
    NEAR_DUPLICATE_JACCARD,
    RUN_TOKENS,
    SHINGLE_CHARACTERS,
    count_duplicates,
    in_training,
    passages,
)
from paribus.engine.data.order import Mixture, Windows
from paribus.engine.data.tokenizer import TOKEN_CLASSES
from paribus.engine.data.tokens import CHUNK_TOKENS, Tokens, chunks
from paribus.engine.setting import CORPUS

ALL_TOKENS = 2**21
"""A text of no more is described whole; of a longer one, a sample."""

SAMPLE_BLOCKS, BLOCK_TOKENS = 32, 2**13  # of either split, at even distances


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Tables of `dataset`, made from its tokens.

    All numbers are counts, for a reader to divide: `token_classes` of corpus, train and validation;
    `duplicates` of documents and of passages (see `count_duplicates`); `leakage`, the validation
    tokens that lie in a run of `run_tokens` tokens which training has word for word; and the
    `rules` that decided.

    `looked_at` says how many tokens each table is about. Classes are counted in all of the text, a
    chunk at a time. Of a text of more than ALL_TOKENS tokens, duplicates are counted among what
    lies whole in SAMPLE_BLOCKS blocks of each split, and leakage is that of such blocks of
    validation, looked for in all of training. The answer is JSON, and the same for the same text.
    """
    n = len(dataset.train) + len(dataset.validation)
    is_whole = n <= ALL_TOKENS
    units = _units(dataset, is_whole=is_whole)
    blocks = [dataset.validation[:]] if is_whole else _blocks(dataset.validation)
    leaked = in_training(dataset.train, blocks)
    sampled = n if is_whole else sum(map(len, blocks + _blocks(dataset.train)))
    return {
        "token_classes": _token_classes(dataset),
        "duplicates": {kind: count_duplicates(*each) for kind, each in units.items()},
        "leakage": {
            "validation_tokens": sum(map(len, blocks)),
            "in_training": int(leaked.sum()),
        },
        "looked_at": {
            "tokens": n,
            "token_classes": n,
            "duplicates": sampled,
            "leakage": sum(map(len, blocks)),
        },
        "rules": {
            "shingle_characters": SHINGLE_CHARACTERS,
            "near_duplicate_jaccard": NEAR_DUPLICATE_JACCARD,
            "min_passage_characters": MIN_PASSAGE_CHARACTERS,
            "run_tokens": RUN_TOKENS,
        },
    }


def _units(dataset: Dataset, *, is_whole: bool) -> dict[str, tuple[list[str], list[bool]]]:
    """Return {kind: (texts, whether each is of the validation split)}.

    A document that the split cuts is one in each split. Of a sample, what lies whole in a block.
    """
    edges = np.cumsum([source.n_tokens for source in dataset.sources.values()])[:-1]
    splits = {
        False: np.split(dataset.train[:], edges) if is_whole else _blocks(dataset.train),
        True: [dataset.validation[:]] if is_whole else _blocks(dataset.validation),
    }
    inner = slice(None) if is_whole else slice(1, -1)
    units = {"document": ([], []), "passage": ([], [])}
    for is_held_out, blocks in splits.items():
        for ids in blocks:
            documents = _documents(dataset, ids)
            texts = {"document": documents, "passage": passages("\n\n".join(documents))}
            for kind, (all_texts, held_out) in units.items():
                all_texts.extend(texts[kind][inner])
                held_out.extend([is_held_out] * len(texts[kind][inner]))
    return units


def _blocks(tokens: Tokens) -> list[np.ndarray]:
    """Return SAMPLE_BLOCKS blocks of `tokens`, or one block of a short text."""
    if len(tokens) <= SAMPLE_BLOCKS * BLOCK_TOKENS:
        return [tokens[:]]
    starts = np.linspace(0, len(tokens) - BLOCK_TOKENS, SAMPLE_BLOCKS).astype(np.int64)
    return [tokens[start : start + BLOCK_TOKENS] for start in starts.tolist()]


def _documents(dataset: Dataset, ids: np.ndarray) -> list[str]:
    """Return the documents that `ids` are of, without their ends; the last may lack one."""
    end = dataset.tokenizer.end_of_document
    ends = np.zeros(0, np.int64) if end is None else np.flatnonzero(ids == end)
    edges = [0, *(ends + 1).tolist(), len(ids)]
    parts = [ids[a:b] for a, b in pairwise(edges) if b > a]
    return [
        dataset.tokenizer.decode(part[:-1] if end is not None and part[-1] == end else part)
        for part in parts
    ]


def _token_classes(dataset: Dataset) -> dict[str, dict[str, int]]:
    classes, splits = dataset.token_classes, (dataset.train, dataset.validation)
    train, validation = (_class_counts(tokens, classes) for tokens in splits)
    counts = {"corpus": train + validation, "train": train, "validation": validation}
    return {
        split: dict(zip(TOKEN_CLASSES, of_split.tolist(), strict=True))
        for split, of_split in counts.items()
    }


@dataclass(frozen=True)
class Consumption:
    """Targets and text that the windows of a trial held. A token is seen when it is a target.

    Attributes:
        targets: [5] targets by token class, in the order of TOKEN_CLASSES, int64.
        times_seen: [K + 1] how many training tokens were seen k = 0, 1, ..., K times, where K is
            the most that any was; int64. They add up to all training tokens: the first token of
            the split, which no window can have as a target, is among those never seen.
        by_token: [V] of each source how often each token was a target, int64; of a single text
            there is one source, `corpus`.
        windows: of each source, how many windows were of it.
    """

    targets: np.ndarray
    times_seen: np.ndarray
    by_token: dict[str, np.ndarray]
    windows: dict[str, int]

    def sources(self, bytes_per_token: np.ndarray) -> dict[str, dict[str, int]]:
        """Windows, targets and the UTF-8 bytes of these, by source; [V] bytes of each token."""
        return {
            name: {
                "windows": self.windows[name],
                "tokens": int(counts.sum()),
                "bytes": int(counts @ bytes_per_token),
            }
            for name, counts in self.by_token.items()
        }


def _class_counts(tokens: Tokens, classes: np.ndarray) -> np.ndarray:
    """Count `tokens` by class, [5]."""
    counts = [np.bincount(classes[ids], minlength=len(TOKEN_CLASSES)) for ids in chunks(tokens)]
    return np.sum([np.zeros(len(TOKEN_CLASSES), np.int64), *counts], axis=0)


def consumption(
    tokens: Tokens,
    classes: np.ndarray,
    seed: int,
    iterations: int,
    batch_size: int,
    seq_len: int,
    windows: Windows | Mixture | None = None,
) -> Consumption:
    """Return what `iterations` batches of `seed` take from the training `tokens` [n_train].

    `classes` [V] is the class of every token id, from `token_classes`; `windows` are those of the
    dataset, by default drawn from anywhere. A pure function of its
    arguments, equal for every arm of a seed. A trial that diverged consumed all its batches too.
    Memory grows with the windows that were drawn, not with the text; text that no window touches is
    not read.
    """
    order = windows or Windows(len(tokens), seq_len)
    drawn = [order.starts(seed, t, batch_size) for t in range(iterations)]
    starts = np.sort(np.concatenate(drawn)) if drawn else np.zeros(0, np.int64)
    times_seen = np.zeros(1, np.int64)
    by_token: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for name, first, last in _ranges(order, len(tokens)):
        by_token[name] = np.zeros(len(classes), np.int64)
        inside = starts[slice(*np.searchsorted(starts, [first, last]))]
        counts[name] = len(inside)
        for begin in range(first, last, CHUNK_TOKENS):
            size = min(CHUNK_TOKENS, last - begin)
            seen = _coverage(inside, begin, size, seq_len)
            times = np.bincount(seen)
            times_seen = np.pad(times_seen, (0, max(len(times) - len(times_seen), 0)))
            times_seen[: len(times)] += times
            if len(times) > 1:
                # Sums of floats, exact below 2^53 targets.
                counted = np.bincount(tokens[begin : begin + size], seen, minlength=len(classes))
                by_token[name] += counted.astype(np.int64)
    weights = np.sum(list(by_token.values()), axis=0)
    targets = np.bincount(classes, weights, minlength=len(TOKEN_CLASSES)).astype(np.int64)
    return Consumption(targets, times_seen, by_token, counts)


def _ranges(order: Windows | Mixture, n: int) -> list[tuple[str, int, int]]:
    """Return (name, where it begins, where it ends) of every source in `n` training tokens."""
    if isinstance(order, Windows):
        return [(CORPUS, 0, n)]
    edges = [*order.offsets.values(), n]
    return list(zip(order.offsets, edges, edges[1:], strict=False))


def _coverage(starts: np.ndarray, begin: int, size: int, seq_len: int) -> np.ndarray:
    """Return [size] how many windows have each token from `begin` on as a target.

    `starts` are sorted. A window that starts at s has the targets s + 1 ... s + seq_len.
    """
    first, last = np.searchsorted(starts, [begin - seq_len, begin + size - 1])
    opened = starts[first:last] + 1 - begin
    change = np.bincount(opened.clip(min=0), minlength=size + 1)[: size + 1]
    closed = opened + seq_len
    change -= np.bincount(closed[closed < size], minlength=size + 1)
    return np.cumsum(change[:size])
