"""What the records say of a corpus beyond its digests: classes, duplicates, leakage.

Computed once per study and not by every worker: a second or two for a text of 1 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from paribus.data.consumption import class_counts
from paribus.data.dataset import Dataset, corpus_digest
from paribus.data.duplicates import (
    MIN_PASSAGE_CHARACTERS,
    NEAR_DUPLICATE_JACCARD,
    SHINGLE_CHARACTERS,
    count_duplicates,
    passages,
)
from paribus.data.leakage import RUN_TOKENS, in_training
from paribus.data.token_classes import TOKEN_CLASSES, token_classes
from paribus.errors import ParibusError

# (which document, which character of it)
Place = tuple[int, int]


def describe_data(dataset: Dataset, documents: Sequence[str]) -> dict[str, Any]:
    """Tables of `dataset`, made from the `documents` that `read_corpus` gives for it.

    All numbers are counts, for a reader to divide: `token_classes` of corpus, train and validation;
    `duplicates` of documents and of passages (see `Duplicates`); `leakage`, the validation tokens
    that lie in a run of `run_tokens` tokens which training has word for word; and the `rules` that
    decided. A document or passage belongs to the split that it begins in: the one that the split
    cuts in two is a unit of training, and only `leakage` looks at the rest of it.

    The answer is JSON, and the same for the same text. Raises ParibusError where the documents are
    not those of the dataset, as when a file was edited in between.
    """
    if corpus_digest(documents) != dataset.digests["corpus"]:
        raise ParibusError(
            f"the corpus has SHA-256 {corpus_digest(documents)[:12]}..., not the "
            f"{dataset.digests['corpus'][:12]}... that was split; leave its files as they are "
            "while a study runs"
        )
    cut = _first_of_validation(dataset)
    whole = [((d, 0), text) for d, text in enumerate(documents)]
    parts = [((d, c), passage) for d, text in enumerate(documents) for c, passage in passages(text)]
    leaked = in_training(dataset.train, dataset.validation)
    return {
        "token_classes": _token_classes(dataset),
        "duplicates": {"document": _duplicates(whole, cut), "passage": _duplicates(parts, cut)},
        "leakage": {
            "validation_tokens": len(dataset.validation),
            "in_training": int(leaked.sum()),
        },
        "rules": {
            "shingle_characters": SHINGLE_CHARACTERS,
            "near_duplicate_jaccard": NEAR_DUPLICATE_JACCARD,
            "min_passage_characters": MIN_PASSAGE_CHARACTERS,
            "run_tokens": RUN_TOKENS,
        },
    }


def _token_classes(dataset: Dataset) -> dict[str, dict[str, int]]:
    tokenizer = dataset.tokenizer
    classes = token_classes(tokenizer.vocabulary, tokenizer.end_of_document)
    train, validation = (class_counts(t, classes) for t in (dataset.train, dataset.validation))
    splits = {"corpus": train + validation, "train": train, "validation": validation}
    return {
        split: dict(zip(TOKEN_CLASSES, counts.tolist(), strict=True))
        for split, counts in splits.items()
    }


def _duplicates(units: Sequence[tuple[Place, str]], cut: Place) -> dict[str, int]:
    in_validation = [place >= cut for place, _ in units]
    return asdict(count_duplicates([text for _, text in units], in_validation))


def _first_of_validation(dataset: Dataset) -> Place:
    """Where the split falls, read off the training tokens, so that it holds for any tokenizer."""
    ends = np.flatnonzero(dataset.train == dataset.tokenizer.end_of_document)
    opened = int(ends[-1]) + 1 if len(ends) else 0
    return len(ends), len(dataset.tokenizer.decode(dataset.train[opened:]))
