"""A model whose every prediction can be worked out by hand: it looks at one token."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paribus.engine.evaluation import Evaluation, Predictions, evaluate_on
from paribus.engine.evaluation.measures import Measure, Row
from paribus.engine.evaluation.predictions import predict


def rows_of(measure: Measure, chunk: Predictions) -> list[Row]:
    """The rows of a text of a single chunk."""
    return measure.rows(np.asarray(measure.function(chunk), np.float64), chunk.seq_len)


class Bigram(nn.Module):
    """The logits of the next token are the row of this one, [V, V]; remembers what it was shown."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table, dtype=torch.float32))
        self.shown: list[Tensor] = []

    def forward(self, tokens_BT: Tensor) -> Tensor:
        self.shown.append(tokens_BT)
        return self.table[tokens_BT]


def of_token(vocabulary: int, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Facts of each token: by default, alphabetic and one character of one byte."""
    ones = np.ones(vocabulary, np.int64)
    return {"token_class": 0 * ones, "characters": ones, "n_bytes": ones} | arrays


@pytest.fixture
def bigram() -> Callable[[np.ndarray], Bigram]:
    return Bigram


@pytest.fixture
def predicted() -> Callable[..., Predictions]:
    """`predicted(table, tokens, seq_len, **arrays)`: what a bigram of these logits predicts.

    The text is short enough to be a single chunk.
    """

    def run(table: np.ndarray, tokens: object, seq_len: int, **arrays: np.ndarray) -> Predictions:
        ids = np.asarray(tokens, dtype=np.uint16)
        (chunk,) = predict(Bigram(table), ids, seq_len, of_token(len(table), **arrays))
        return chunk

    return run


@pytest.fixture
def evaluated() -> Callable[..., Evaluation]:
    """The same, evaluated."""

    def run(
        table: np.ndarray,
        tokens: object,
        seq_len: int,
        end_of_document: int | None = None,
    ) -> Evaluation:
        known = of_token(len(table))
        tokenizer = SimpleNamespace(
            end_of_document=end_of_document,
            characters_per_token=known["characters"],
            bytes_per_token=known["n_bytes"],
        )
        dataset: Any = SimpleNamespace(tokenizer=tokenizer, token_classes=known["token_class"])
        return evaluate_on(Bigram(table), dataset, np.asarray(tokens, np.uint16), seq_len)

    return run
