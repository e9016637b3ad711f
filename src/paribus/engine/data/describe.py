"""What the records say of a corpus beyond its digests: classes, duplicates, leakage.

Computed once per study and not by every worker: a second or two for a text of 1 MB.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from paribus.engine.data.consumption import class_counts
from paribus.engine.data.dataset import Dataset
from paribus.engine.data.duplicates import (
    MIN_PASSAGE_CHARACTERS,
    NEAR_DUPLICATE_JACCARD,
    SHINGLE_CHARACTERS,
    count_duplicates,
    passages,
)
from paribus.engine.data.leakage import RUN_TOKENS, in_training
from paribus.engine.data.token_classes import TOKEN_CLASSES, token_classes
from paribus.engine.data.tokens import Tokens

ALL_TOKENS = 2**21
"""A text of no more is described whole; of a longer one, a sample."""

SAMPLE_BLOCKS, BLOCK_TOKENS = 32, 2**13  # of either split, at even distances

# (which document, which character of it)
Place = tuple[int, int]


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Tables of `dataset`, made from its tokens.

    All numbers are counts, for a reader to divide: `token_classes` of corpus, train and validation;
    `duplicates` of documents and of passages (see `Duplicates`); `leakage`, the validation tokens
    that lie in a run of `run_tokens` tokens which training has word for word; and the `rules` that
    decided. A document or passage belongs to the split that it begins in: the one that the split
    cuts in two is a unit of training, and only `leakage` looks at the rest of it.

    `looked_at` says how many tokens each table is about. Classes are counted in all of the text, a
    chunk at a time. Of a text of more than ALL_TOKENS tokens, duplicates are counted among what
    lies whole in SAMPLE_BLOCKS blocks of each split, and leakage is that of such blocks of
    validation, looked for in all of training. The answer is JSON, and the same for the same text.
    """
    n = len(dataset.train) + len(dataset.validation)
    is_whole = n <= ALL_TOKENS
    units = _all_units(dataset) if is_whole else _some_units(dataset)
    blocks = [dataset.validation[:]] if is_whole else _blocks(dataset.validation)
    leaked = in_training(dataset.train, blocks)
    sampled = n if is_whole else sum(map(len, blocks + _blocks(dataset.train)))
    return {
        "token_classes": _token_classes(dataset),
        "duplicates": {kind: _duplicates(*found) for kind, found in units.items()},
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


# By kind: (the units, whether each is of the validation split)
Units = dict[str, tuple[list[str], list[bool]]]


def _all_units(dataset: Dataset) -> Units:
    """Every document and passage."""
    train, validation = dataset.train[:], dataset.validation[:]
    if dataset.is_one_text:
        documents = _documents(dataset, np.concatenate([train, validation]))
        cut = _first_of_validation(dataset)
    else:
        # Sources are apart, also where no end of a document parts them.
        edges = np.cumsum([of.n_tokens for of in dataset.sources.values()])[:-1]
        documents = [d for ids in np.split(train, edges) for d in _documents(dataset, ids)]
        cut = len(documents), 0
        documents += _documents(dataset, validation)
    whole = [((d, 0), text) for d, text in enumerate(documents)]
    parts = [((d, c), passage) for d, text in enumerate(documents) for c, passage in passages(text)]
    return {
        kind: ([text for _, text in found], [place >= cut for place, _ in found])
        for kind, found in (("document", whole), ("passage", parts))
    }


def _some_units(dataset: Dataset) -> Units:
    """The documents and passages that lie whole in a block."""
    units: Units = {"document": ([], []), "passage": ([], [])}
    for tokens, is_held_out in ((dataset.train, False), (dataset.validation, True)):
        for ids in _blocks(tokens):
            parts = _documents(dataset, ids)
            inner = [text for _, text in passages("\n\n".join(parts))]
            for kind, found in (("document", parts[1:-1]), ("passage", inner[1:-1])):
                units[kind][0].extend(found)
                units[kind][1].extend([is_held_out] * len(found))
    return units


def _blocks(tokens: Tokens) -> list[np.ndarray]:
    """SAMPLE_BLOCKS blocks of `tokens`; all of them in one where they are no more than that."""
    if len(tokens) <= SAMPLE_BLOCKS * BLOCK_TOKENS:
        return [tokens[:]]
    starts = np.linspace(0, len(tokens) - BLOCK_TOKENS, SAMPLE_BLOCKS).astype(np.int64)
    return [tokens[start : start + BLOCK_TOKENS] for start in starts.tolist()]


def _documents(dataset: Dataset, ids: np.ndarray) -> list[str]:
    """The documents that `ids` are of, without their ends; the last may lack one."""
    end = dataset.tokenizer.end_of_document
    ends = np.zeros(0, np.int64) if end is None else np.flatnonzero(ids == end)
    edges = [0, *(ends + 1).tolist(), len(ids)]
    parts = [ids[a:b] for a, b in pairwise(edges) if b > a]
    return [
        dataset.tokenizer.decode(part[:-1] if end is not None and part[-1] == end else part)
        for part in parts
    ]


def _token_classes(dataset: Dataset) -> dict[str, dict[str, int]]:
    tokenizer = dataset.tokenizer
    classes = token_classes(tokenizer.vocabulary, tokenizer.end_of_document)
    train, validation = (class_counts(t, classes) for t in (dataset.train, dataset.validation))
    splits = {"corpus": train + validation, "train": train, "validation": validation}
    return {
        split: dict(zip(TOKEN_CLASSES, counts.tolist(), strict=True))
        for split, counts in splits.items()
    }


def _duplicates(units: list[str], in_validation: list[bool]) -> dict[str, int]:
    return asdict(count_duplicates(units, in_validation))


def _first_of_validation(dataset: Dataset) -> Place:
    """Where the split falls, read off the training tokens, so that it holds for any tokenizer."""
    ids = dataset.train[:]
    ends = np.flatnonzero(ids == dataset.tokenizer.end_of_document)
    opened = int(ends[-1]) + 1 if len(ends) else 0
    return len(ends), len(dataset.tokenizer.decode(ids[opened:]))
