"""Sums of held-out text by item, for inference about new text: documents, or windows.

Where the text has LEAST_DOCUMENTS documents or more, a document is an item: what is said of new
text is of new documents. Otherwise windows are, which are neighbours and no sample: who reads them
joins them to contiguous blocks (`paribus.statistics.contiguous_blocks`). Of more than MOST_BLOCKS
items, neighbours are joined here: item i of n is in block i * MOST_BLOCKS // n, so that blocks have
as many items each, but for one. Blocks of documents do not depend on seq_len, nor on the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paribus.engine.data import Tokens
from paribus.engine.data.tokens import chunks
from paribus.engine.evaluation.predictions import Predictions

MOST_BLOCKS = 2**10
LEAST_DOCUMENTS = 5  # as fewer pairs are not tested either

Kind = Literal["document", "window"]

SUMS: dict[str, tuple[str, type, Callable[[Predictions], np.ndarray | None]]] = {
    "loss_sum_nats": ("nats", np.float64, lambda chunk: chunk.loss_nats),
    "brier_sum": ("1", np.float64, lambda chunk: chunk.brier),
    "correct": ("tokens", np.int64, lambda chunk: chunk.correct),
    "predicted": ("tokens", np.int64, lambda chunk: None),  # each token is one
    "characters": ("characters", np.int64, lambda chunk: chunk.characters),
}
"""What is added up of every model, by column: unit, type, and a number for each of its tokens."""
UNITS = {name: unit for name, (unit, *_) in SUMS.items()} | {"bits": "bits", "bytes": "bytes"}


@dataclass(frozen=True)
class Division:
    """The division of a text into blocks.

    Attributes:
        kind: what an item is.
        items: how many there are.
        seq_len: of a window.
        ends: the places of the tokens that close all documents but the last.
    """

    kind: Kind
    items: int
    seq_len: int
    ends: np.ndarray

    @classmethod
    def of(cls, tokens: Tokens, seq_len: int, end: int | None) -> Division:
        """Divide `tokens` [N + 1], predicted from the second on; `end` closes a document."""
        n, ends, place = len(tokens) - 1, [np.zeros(0, np.int64)], 1
        # What ends with the last token begins no other document.
        for ids in chunks(tokens[1:n]) if end is not None else ():
            ends.append(np.flatnonzero(ids == end) + place)
            place += len(ids)
        closed = np.concatenate(ends)
        if len(closed) + 1 >= LEAST_DOCUMENTS:
            return cls("document", len(closed) + 1, seq_len, closed)
        return cls("window", -(-n // seq_len), seq_len, closed)

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return min(self.items, MOST_BLOCKS)

    @property
    def record(self) -> dict[str, str | int]:
        """The record of it."""
        return {"kind": self.kind, "items": self.items, "blocks": self.n_blocks}

    def add(self, place: int, *columns: np.ndarray | None) -> list[np.ndarray]:
        """Return [n_blocks] sums of each of the `columns`, of the tokens from `place` on.

        A column that is None counts as many tokens as the first one has. The first token of a text,
        which no token predicts, is in the first block.
        """
        places = place + np.arange(max(len(column) for column in columns if column is not None))
        if self.kind == "document":
            item = np.searchsorted(self.ends, places)
        else:
            item = np.maximum((places - 1) // self.seq_len, 0)
        block, n = item * self.n_blocks // self.items, self.n_blocks
        return [np.bincount(block, column, minlength=n) for column in columns]
