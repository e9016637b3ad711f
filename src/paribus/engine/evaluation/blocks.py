"""Per-block sums of token scores on held-out text, for inference about new text.

A text is divided into items. If it has at least LEAST_DOCUMENTS documents, the items are documents,
and results generalize to new documents. Otherwise, the items are windows. Adjacent windows are not
independent, so the statistics join them into contiguous blocks
(`paribus.statistics.contiguous_blocks`). With more than MOST_BLOCKS items, adjacent items share a
block: item i of n is in block i * MOST_BLOCKS // n, so block sizes differ by at most one. Blocks of
documents depend neither on seq_len nor on the tokenizer.
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

SUMS: dict[str, tuple[type, str]] = {
    "loss_sum_nats": (np.float64, "loss_nats"),
    "brier_sum": (np.float64, "brier"),
    "correct": (np.int64, "correct"),
    "predicted": (np.int64, ""),  # each token is one
    "characters": (np.int64, "characters"),
    "bytes": (np.int64, "n_bytes"),
}
"""Columns summed within each block: {name: (dtype, attribute of `Predictions`)}."""


@dataclass(frozen=True)
class Division:
    """Assignment of a text's tokens to blocks.

    Attributes:
        kind: whether items are documents or windows.
        items: number of items.
        seq_len: number of tokens in a window.
        ends: positions of end-of-document tokens, excluding the end of the last document.
    """

    kind: Kind
    items: int
    seq_len: int
    ends: np.ndarray

    @classmethod
    def divide(cls, tokens: Tokens, seq_len: int, end: int | None) -> Division:
        """Divide a text into blocks.

        Args:
            tokens: [N + 1] token ids; the first one is context only.
            seq_len: number of tokens in a window.
            end: id of the end-of-document token, or None if the tokenizer has none.
        """
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
        """Number of blocks, at most MOST_BLOCKS."""
        return min(self.items, MOST_BLOCKS)

    @property
    def record(self) -> dict[str, str | int]:
        """Item kind, item count and block count, as stored in trial records."""
        return {"kind": self.kind, "items": self.items, "blocks": self.n_blocks}

    def add(self, place: int, *columns: np.ndarray | None) -> list[np.ndarray]:
        """Sum each column within each block, and return one [n_blocks] array per column.

        Args:
            place: position of the columns' first token in the text, at least 1.
            columns: per-token values; None counts the tokens instead.
        """
        places = place + np.arange(max(len(column) for column in columns if column is not None))
        if self.kind == "document":
            item = np.searchsorted(self.ends, places)
        else:
            item = (places - 1) // self.seq_len
        block, n = item * self.n_blocks // self.items, self.n_blocks
        return [np.bincount(block, column, minlength=n) for column in columns]
