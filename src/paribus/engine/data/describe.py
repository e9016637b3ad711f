"""Describe a corpus in tables, and the part of it that a trial consumed."""

from __future__ import annotations

from typing import Any

import numpy as np

from paribus.engine.data.dataset import Dataset
from paribus.engine.data.duplicates import (
    MIN_PASSAGE_CHARACTERS,
    NEAR_DUPLICATE_JACCARD,
    RUN_TOKENS,
    SHINGLE_CHARACTERS,
    count_duplicates,
    count_in_training,
    passages,
)
from paribus.engine.data.order import Mixture, Windows
from paribus.engine.data.tokenizer import TOKEN_CLASSES
from paribus.engine.data.tokens import CHUNK_TOKENS, chunks
from paribus.engine.setting import CORPUS

MOST_TOKENS = 2**21
"""Of either split, duplicates are counted in so many tokens, from its beginning on."""


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Return tables of `dataset`, all numbers counts, for a reader to divide.

    `token_classes` of corpus, train and validation; `duplicates` of documents and of passages (see
    `count_duplicates`); `leakage`, the validation tokens that lie in a run of `run_tokens` tokens
    which training has word for word; and the `rules` that decided. `looked_at` says how many tokens
    each table is about.
    """
    n, validation = len(dataset.train) + len(dataset.validation), dataset.validation[:MOST_TOKENS]
    edges = np.cumsum([source.n_tokens for source in dataset.sources.values()])[:-1]
    texts = [(ids, False) for ids in np.split(dataset.train[:MOST_TOKENS], edges)]
    units = {"document": ([], []), "passage": ([], [])}
    for ids, is_held_out in [*texts, (validation, True)]:
        documents = dataset.tokenizer.documents(ids)
        parts = {"document": documents, "passage": passages("\n\n".join(documents))}
        for kind, some in parts.items():
            units[kind][0].extend(some)
            units[kind][1].extend([is_held_out] * len(some))
    return {
        "token_classes": _token_classes(dataset),
        "duplicates": {kind: count_duplicates(*each) for kind, each in units.items()},
        "leakage": {
            "validation_tokens": len(validation),
            "in_training": count_in_training(dataset.train, validation),
        },
        "looked_at": {
            "tokens": n,
            "token_classes": n,
            "duplicates": min(len(dataset.train), MOST_TOKENS) + len(validation),
            "leakage": len(validation),
        },
        "rules": {
            "shingle_characters": SHINGLE_CHARACTERS,
            "near_duplicate_jaccard": NEAR_DUPLICATE_JACCARD,
            "min_passage_characters": MIN_PASSAGE_CHARACTERS,
            "run_tokens": RUN_TOKENS,
        },
    }


def _token_classes(dataset: Dataset) -> dict[str, dict[str, int]]:
    classes, n = dataset.token_classes, len(TOKEN_CLASSES)
    train, validation = (
        np.sum([np.bincount(classes[ids], minlength=n) for ids in chunks(tokens)], axis=0)
        for tokens in (dataset.train, dataset.validation)
    )
    counts = {"corpus": train + validation, "train": train, "validation": validation}
    return {split: _named(of_split) for split, of_split in counts.items()}


def _named(counts: np.ndarray) -> dict[str, int]:
    """Return counts by class, under their names."""
    return dict(zip(TOKEN_CLASSES, counts.tolist(), strict=True))


def consumption(
    dataset: Dataset, seed: int, iterations: int, batch_size: int, seq_len: int
) -> dict[str, Any]:
    """Return what `iterations` batches of `seed` take from the training text.

    `token_classes` counts targets by class. `times_seen` says how many training tokens were seen, a
    target, 0, 1, 2, ... times; the first token of the split, which no window can have as a target,
    is among those never seen. `sources` has the windows, targets and bytes of each source. Equal
    for every arm of a seed; a trial that diverged consumed all its batches too. Memory grows with
    the windows that were drawn, not with the text; text that no window touches is not read.
    """
    tokens, order, classes = dataset.train, dataset.windows, dataset.token_classes
    of_token = dataset.tokenizer.bytes_per_token
    drawn = [order.starts(seed, t, batch_size) for t in range(iterations)]
    starts = np.sort(np.concatenate(drawn)) if drawn else np.zeros(0, np.int64)
    times_seen = np.zeros(1, np.int64)
    by_token, sources = np.zeros(len(classes), np.int64), {}
    for name, first, last in _ranges(order, len(tokens)):
        of_source = np.zeros(len(classes), np.int64)
        inside = starts[slice(*np.searchsorted(starts, [first, last]))]
        for begin in range(first, last, CHUNK_TOKENS):
            size = min(CHUNK_TOKENS, last - begin)
            seen = _coverage(inside, begin, size, seq_len)
            times = np.bincount(seen)
            times_seen = np.pad(times_seen, (0, max(len(times) - len(times_seen), 0)))
            times_seen[: len(times)] += times
            if len(times) > 1:
                # Sums of floats, exact below 2^53 targets.
                counted = np.bincount(tokens[begin : begin + size], seen, minlength=len(classes))
                of_source += counted.astype(np.int64)
        by_token += of_source
        sources[name] = {
            "windows": len(inside),
            "tokens": int(of_source.sum()),
            "bytes": int(of_source @ of_token),
        }
    targets = np.bincount(classes, by_token, minlength=len(TOKEN_CLASSES)).astype(np.int64)
    return {
        "token_classes": _named(targets),
        "times_seen": times_seen.tolist(),
        "sources": sources,
    }


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
