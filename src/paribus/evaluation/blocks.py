"""Sums of held-out text by item, for inference about new text: documents, or windows.

Where the text has LEAST_DOCUMENTS documents or more, a document is an item: what is said of new
text is of new documents. Otherwise windows are. Of more than MOST_BLOCKS items, neighbours are
joined: item i of n is in block i * MOST_BLOCKS // n, so that blocks have as many items each, but
for one. Blocks of documents do not depend on seq_len, nor on the tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from paribus.data import Tokens
from paribus.data.tokens import CHUNK_TOKENS
from paribus.evaluation.predictions import Predictions

MOST_BLOCKS = 2**10
LEAST_DOCUMENTS = 5  # as fewer pairs are not tested either

Kind = Literal["document", "window"]


@dataclass(frozen=True)
class Blocks:
    """Sums by block of the text, in its order.

    Attributes:
        kind: what an item is.
        items: how many there are.
        loss_sum_nats, brier_sum: [blocks] float64.
        correct, predicted, characters: [blocks] int64: hits, tokens, and the characters that these
            stand for.
    """

    kind: Kind
    items: int
    loss_sum_nats: np.ndarray
    brier_sum: np.ndarray
    correct: np.ndarray
    predicted: np.ndarray
    characters: np.ndarray

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The sums by name."""
        return {name: value for name, value in vars(self).items() if name not in ("kind", "items")}

    @property
    def record(self) -> dict[str, str | int]:
        """What the records say of them."""
        return {"kind": self.kind, "items": self.items, "blocks": len(self.predicted)}


class BlockSums:
    """Adds up chunks by block."""

    def __init__(self, tokens: Tokens, seq_len: int, end_of_document: int | None) -> None:
        """`tokens` [N + 1] are the text that will be predicted from its second token on."""
        self._end = end_of_document
        documents = 1 if end_of_document is None else _documents(tokens, end_of_document)
        self._kind: Kind = "document" if documents >= LEAST_DOCUMENTS else "window"
        windows = -(-(len(tokens) - 1) // seq_len)
        self._items = documents if self._kind == "document" else windows
        self._blocks = min(self._items, MOST_BLOCKS)
        self._ended = 0  # documents
        self._sums = np.zeros((5, self._blocks))

    def add(self, chunk: Predictions) -> None:
        """Add the next chunk of the text; chunks come in its order."""
        item = chunk.window
        if self._kind == "document":
            ends = np.cumsum(chunk.token == self._end)
            # The end of a document is the last token of it.
            item = self._ended + np.concatenate([[0], ends[:-1]])
            self._ended += int(ends[-1])
        block = item * self._blocks // self._items
        columns = (chunk.loss_nats, chunk.brier, chunk.correct, None, chunk.characters)
        for sums, values in zip(self._sums, columns, strict=True):
            sums += np.bincount(block, values, minlength=self._blocks)

    @property
    def blocks(self) -> Blocks:
        """The sums of all that was added."""
        loss_sum_nats, brier_sum, *counts = self._sums
        counts = (sums.astype(np.int64) for sums in counts)
        return Blocks(self._kind, self._items, loss_sum_nats, brier_sum, *counts)


def _documents(tokens: Tokens, end: int) -> int:
    """How many documents have a token that is predicted: any but the first of the text."""
    last = len(tokens) - 1  # what ends there begins no other
    starts = range(1, last, CHUNK_TOKENS)
    return 1 + sum(
        int((tokens[start : min(start + CHUNK_TOKENS, last)] == end).sum()) for start in starts
    )
