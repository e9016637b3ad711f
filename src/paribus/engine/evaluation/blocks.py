"""Sums of held-out text by item, for inference about new text: documents, or windows.

Where the text has LEAST_DOCUMENTS documents or more, a document is an item: what is said of new
text is of new documents. Otherwise windows are, which are neighbours and no sample: who reads them
joins them to contiguous blocks (`paribus.statistics.contiguous_blocks`). Of more than MOST_BLOCKS
items, neighbours are joined here: item i of n is in block i * MOST_BLOCKS // n, so that blocks have
as many items each, but for one. Blocks of documents do not depend on seq_len, nor on the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
OF_OWN = "that of the measure's total or count"


@dataclass(frozen=True)
class Division:
    """The division of a text into blocks.

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
    def of(cls, tokens: Tokens, seq_len: int, end: int | None) -> Division:
        """Divide `tokens` [N + 1], predicted from the second on; `end` closes a document."""
        n, documents = len(tokens) - 1, 1
        if end is not None:
            # What ends with the last token begins no other.
            documents += sum(int((ids == end).sum()) for ids in chunks(tokens[1:n]))
        if documents >= LEAST_DOCUMENTS:
            return cls("document", documents, seq_len, int(tokens[0] == end))
        return cls("window", -(-n // seq_len), seq_len)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return min(self.items, MOST_BLOCKS)

    def of_places(self, document: np.ndarray | int, place: np.ndarray) -> np.ndarray:
        """Return [N] the blocks of the tokens at `place` [N] in the text, of each the document.

        The first token of a text, which no token predicts, is in the first block.
        """
        if self.kind == "document":
            item = np.broadcast_to(document, place.shape) - self.unpredicted
        else:
            item = (place - 1) // self.seq_len
        return np.maximum(item, 0) * self.blocks // self.items


@dataclass(frozen=True)
class Blocks:
    """Sums by block of the text, in its order.

    Attributes:
        kind: what an item is.
        items: how many there are.
        columns: [blocks] by name: those of SUMS, then what only some studies measure, float64.
    """

    kind: Kind
    items: int
    columns: dict[str, np.ndarray]

    def with_others(self, others: Mapping[str, np.ndarray]) -> Blocks:
        """Return the same with more columns."""
        return replace(self, columns={**self.columns, **others})

    @property
    def record(self) -> dict[str, str | int]:
        """The record of them."""
        return {"kind": self.kind, "items": self.items, "blocks": len(self.columns["predicted"])}


class BlockSums:
    """Adds up chunks by block."""

    def __init__(self, tokens: Tokens, seq_len: int, end_of_document: int | None) -> None:
        """Take the text `tokens` [N + 1], which will be predicted from its second token on."""
        self._end = end_of_document
        self._division = Division.of(tokens, seq_len, end_of_document)
        self._document = self._division.unpredicted  # of the next token
        self.n_blocks = self._division.blocks
        self._sums = np.zeros((len(SUMS), self.n_blocks))

    def add(self, chunk: Predictions) -> np.ndarray:
        """Add the next chunk of the text; chunks come in its order.

        Returns [N] the block of each of its tokens.
        """
        is_end = np.equal(chunk.token, -1 if self._end is None else self._end)
        # The end of a document is the last token of it.
        document = self._document + np.cumsum(is_end) - is_end
        self._document += int(is_end.sum())
        place = chunk.start + 1 + np.arange(len(chunk))
        block = self._division.of_places(document, place)
        for sums, (_, _, values) in zip(self._sums, SUMS.values(), strict=True):
            sums += np.bincount(block, values(chunk), minlength=self.n_blocks)
        return block

    def blocks(self) -> Blocks:
        """Return the sums of all blocks."""
        columns = {
            name: sums.astype(kind)
            for sums, (name, (_, kind, _)) in zip(self._sums, SUMS.items(), strict=True)
        }
        return Blocks(self._division.kind, self._division.items, columns)
