"""Text statistics: overlap between held-out and training text, and per-trial data consumption."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from paribus.engine.data.dataset import Dataset
from paribus.engine.data.duplicates import count_in_training, count_near, passages
from paribus.engine.data.order import Mixture
from paribus.engine.data.tokens import windows
from paribus.engine.setting import CORPUS

MOST_TOKENS = 2**21
"""Maximum number of leading tokens to compare; leakage is counted on the whole training text."""


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Count validation passages and tokens that also occur in the training text.

    Returns `duplicates`, with the number of validation passages that are near duplicates of a
    training passage, and `leakage`, with the number of validation tokens that belong to sequences
    of RUN_TOKENS tokens in the training text.
    """
    validation = dataset.validation[:MOST_TOKENS]
    edges = np.cumsum([source.n_tokens for source in dataset.sources.values()])[:-1]
    parts = [*np.split(dataset.train[:MOST_TOKENS], edges), validation]
    *training, held_out = [passages("\n\n".join(dataset.tokenizer.documents(ids))) for ids in parts]
    near = count_near(chain.from_iterable(training), held_out)
    return {
        "duplicates": {"passage": {"validation_units": len(held_out), "leaked_near": near}},
        "leakage": {
            "validation_tokens": len(validation),
            "in_training": count_in_training(dataset.train, validation),
        },
    }


def consumption(
    dataset: Dataset, seed: int, iterations: int, batch_size: int, seq_len: int
) -> dict[str, Any]:
    """Count the windows, target tokens and bytes that a trial consumes from each source.

    All `iterations` batches are counted, even if the trial diverges earlier.
    """
    order, of_token = dataset.windows, dataset.tokenizer.bytes_per_token
    offsets = order.offsets if isinstance(order, Mixture) else {CORPUS: 0}
    counts, sizes = np.zeros((2, len(offsets)), np.int64)
    for t in range(iterations):
        starts = order.starts(seed, t, batch_size)
        sources = np.searchsorted(list(offsets.values()), starts, side="right") - 1
        counts += np.bincount(sources, minlength=len(counts))
        n_bytes = of_token[windows(dataset.train, starts + 1, seq_len)].sum(axis=1)
        np.add.at(sizes, sources, n_bytes)
    return {
        "sources": {
            name: {"windows": n, "tokens": n * seq_len, "bytes": size}
            for name, n, size in zip(offsets, counts.tolist(), sizes.tolist(), strict=True)
        }
    }
