"""Sums of held-out text by item, for inference about new text: documents, or windows.

Where the text has LEAST_DOCUMENTS documents or more, a document is an item: what is said of new
text is of new documents. Otherwise windows are. Of more than MOST_BLOCKS items, neighbours are
joined: item i of n is in block i * MOST_BLOCKS // n, so that blocks have as many items each, but
for one. Blocks of documents do not depend on seq_len, nor on the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from paribus.engine.data import Tokens
from paribus.engine.data.tokens import CHUNK_TOKENS
from paribus.engine.evaluation.predictions import Predictions

MOST_BLOCKS = 2**10
LEAST_DOCUMENTS = 5  # as fewer pairs are not tested either

Kind = Literal["document", "window"]

SUMS: dict[str, Callable[[Predictions], np.ndarray | None]] = {
    "loss_sum_nats": lambda chunk: chunk.loss_nats,
    "brier_sum": lambda chunk: chunk.brier,
    "correct": lambda chunk: chunk.correct,
    "predicted": lambda chunk: None,  # each token is one
    "characters": lambda chunk: chunk.characters,
}
"""What is added up of every model, by column: from a chunk to a number for each of its tokens."""
UNITS = {
    "loss_sum_nats": "nats",
    "brier_sum": "1",
    "correct": "tokens",
    "predicted": "tokens",
    "characters": "characters",
    "bits": "bits",
    "bytes": "bytes",
}
OF_OWN = "that of the measure's total or count"


@dataclass(frozen=True)
class Division:
    """Which block of a text a token is in.

    Attributes:
        kind: what an item is.
        items: how many there are.
        seq_len: of a window.
        unpredicted: documents before the first one that has a predicted token: 1 where the text
            begins with the end of one.
    """

    kind: Kind
    items: int
    seq_len: int
    unpredicted: int = 0

    @classmethod
    def of(cls, tokens: Tokens, seq_len: int, end_of_document: int | None) -> Division:
        """Of `tokens` [N + 1], the text that is predicted from its second token on."""
        documents = 1 if end_of_document is None else _documents(tokens, end_of_document)
        if documents >= LEAST_DOCUMENTS:
            return cls("document", documents, seq_len, int(tokens[0] == end_of_document))
        return cls("window", -(-(len(tokens) - 1) // seq_len), seq_len)

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return min(self.items, MOST_BLOCKS)

    def of_items(self, item: np.ndarray) -> np.ndarray:
        """[N] the blocks of items, by their numbers from 0."""
        return item * self.blocks // self.items

    def of_places(self, document: int, place: np.ndarray) -> np.ndarray:
        """[N] the blocks of the tokens at `place` [N] in the text, all in the one document.

        The first token of a text, which no token predicts, is in the first block.
        """
        if self.kind == "document":
            return self.of_items(np.full(len(place), max(document - self.unpredicted, 0)))
        return self.of_items(np.maximum(place - 1, 0) // self.seq_len)


@dataclass(frozen=True)
class Blocks:
    """Sums by block of the text, in its order.

    Attributes:
        kind: what an item is.
        items: how many there are.
        loss_sum_nats, brier_sum: [blocks] float64.
        correct, predicted, characters: [blocks] int64: hits, tokens, and the characters that these
            stand for.
        others: [blocks] float64 by name: what only some studies measure.
    """

    kind: Kind
    items: int
    loss_sum_nats: np.ndarray
    brier_sum: np.ndarray
    correct: np.ndarray
    predicted: np.ndarray
    characters: np.ndarray
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The sums by name."""
        return {name: getattr(self, name) for name in SUMS} | dict(self.others)

    def with_others(self, others: Mapping[str, np.ndarray]) -> Blocks:
        """The same with more columns."""
        return replace(self, others={**self.others, **others})

    @property
    def record(self) -> dict[str, str | int]:
        """What the records say of them."""
        return {"kind": self.kind, "items": self.items, "blocks": len(self.predicted)}


class BlockSums:
    """Adds up chunks by block."""

    def __init__(self, tokens: Tokens, seq_len: int, end_of_document: int | None) -> None:
        """`tokens` [N + 1] are the text that will be predicted from its second token on."""
        self._end = end_of_document
        self._division = Division.of(tokens, seq_len, end_of_document)
        self._ended = 0  # documents
        self._sums = np.zeros((len(SUMS), self._division.blocks))

    @property
    def n_blocks(self) -> int:
        """How many there are."""
        return self._division.blocks

    def add(self, chunk: Predictions) -> np.ndarray:
        """Add the next chunk of the text; chunks come in its order.

        Returns [N] the block of each of its tokens.
        """
        item = chunk.window
        if self._division.kind == "document":
            ends = np.cumsum(chunk.token == self._end)
            # The end of a document is the last token of it.
            item = self._ended + np.concatenate([[0], ends[:-1]])
            self._ended += int(ends[-1])
        block = self._division.of_items(item)
        for sums, of in zip(self._sums, SUMS.values(), strict=True):
            sums += np.bincount(block, of(chunk), minlength=self.n_blocks)
        return block

    def blocks(self, others: Mapping[str, np.ndarray]) -> Blocks:
        """The sums of all that was added, and `others` by block."""
        loss_sum_nats, brier_sum, *counts = self._sums
        counts = (sums.astype(np.int64) for sums in counts)
        division = self._division
        known = dict(zip(SUMS, (loss_sum_nats, brier_sum, *counts), strict=True))
        return Blocks(division.kind, division.items, **known, others=others)


def _documents(tokens: Tokens, end: int) -> int:
    """How many documents have a token that is predicted: any but the first of the text."""
    last = len(tokens) - 1  # what ends there begins no other
    starts = range(1, last, CHUNK_TOKENS)
    return 1 + sum(
        int((tokens[start : min(start + CHUNK_TOKENS, last)] == end).sum()) for start in starts
    )
