"""Sums per document or window of held-out text, for inference about new text.

If the text has at least LEAST_DOCUMENTS documents, the items are documents, and claims about new
text are claims about new documents. Otherwise the items are windows. Adjacent windows are not
independent, so the statistics join them into contiguous blocks
(`paribus.statistics.contiguous_blocks`). With more than MOST_BLOCKS items, neighbours share a
block: item i of n is in block i * MOST_BLOCKS // n, so that block sizes differ by at most one.
Blocks of documents depend neither on seq_len nor on the tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from paribus.engine.data import Tokens
from paribus.engine.data.tokens import chunks

MOST_BLOCKS = 2**10
LEAST_DOCUMENTS = 5  # as fewer pairs are not tested either

Kind = Literal["document", "window"]

SUMS: dict[str, tuple[str, type, str]] = {
    "loss_sum_nats": ("nats", np.float64, "loss_nats"),
    "brier_sum": ("1", np.float64, "brier"),
    "correct": ("tokens", np.int64, "correct"),
    "predicted": ("tokens", np.int64, ""),  # each token is one
    "characters": ("characters", np.int64, "characters"),
    "bytes": ("bytes", np.int64, "n_bytes"),
}
"""What is added up of every model, by column: unit, type, and the attribute of `Predictions`."""


@dataclass(frozen=True)
class Division:
    """The division of a text into blocks.

    Attributes:
        kind: kind of the items.
        items: number of items.
        seq_len: length of a window.
        ends: positions of the tokens that end documents, except the last document.
    """

    kind: Kind
    items: int
    seq_len: int
    ends: np.ndarray

    @classmethod
    def of(cls, tokens: Tokens, seq_len: int, end: int | None) -> Division:
        """Divide `tokens` [N + 1], whose first is not predicted; `end` is the end-of-document
        token."""
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
        """Number of blocks."""
        return min(self.items, MOST_BLOCKS)

    @property
    def record(self) -> dict[str, str | int]:
        """Description of the division for the records."""
        return {"kind": self.kind, "items": self.items, "blocks": self.n_blocks}

    def add(self, place: int, *columns: np.ndarray | None) -> list[np.ndarray]:
        """Return the block sums [n_blocks] of each column, for tokens from `place` (at least 1) on.

        A column of None counts tokens.
        """
        places = place + np.arange(max(len(column) for column in columns if column is not None))
        if self.kind == "document":
            item = np.searchsorted(self.ends, places)
        else:
            item = (places - 1) // self.seq_len
        block, n = item * self.n_blocks // self.items, self.n_blocks
        return [np.bincount(block, column, minlength=n) for column in columns]
