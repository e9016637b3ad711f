"""Bits that a model takes to tell a held-out text, per byte: the same for every tokenizer.

Losses per token cannot be compared between tokenizers: a token is another piece of text in each.
The code length of the text can be: the sum of -log2 p over all tokens of whole documents, over the
UTF-8 bytes that these are (Gao et al. 2020, The Pile, section 3.1). The rule is one for all:

- Documents are read one by one, from their first token on, in windows of seq_len predictions that
  do not overlap. Where the held-out text has several documents, the first token of each is
  predicted from an end, as of the document before it; that of a single document costs log2 V bits,
  as if all tokens were equally probable. What is trained on plays no part in this.
- End-of-document bits count where the held-out text has several documents; they add no bytes.
- Each is a code that could be decoded, so the sum is a proper code length. It is that of one way to
  cut the text into tokens, an upper bound on the improbability of the text itself.

Where claims are about new text, bits and bytes are added up by the same blocks of it as losses.
What it costs to begin windows anew is measured where windows that overlap are asked for.

Axes: W windows of a batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from paribus.engine.data import Dataset, Tokens
from paribus.engine.data.order import ends_of
from paribus.engine.data.tokens import CHUNK_TOKENS
from paribus.engine.evaluation.blocks import Division
from paribus.engine.evaluation.predictions import (
    Precision,
    evaluating,
    products_in,
    windows_per_batch,
)
from paribus.metric import ItemSums, Metric

BITS_PER_BYTE = Metric(
    *("bits_per_byte", "bits per byte", "bits/byte", "lower", "evaluation"),
    items=ItemSums("bits", "bytes"),
)


@dataclass
class CodeLength:
    """The code length of a text.

    Attributes:
        bits: of all its tokens.
        n_bytes, n_tokens, n_documents: of the text; tokens with the ends that count.
        overlap: the share of a window that was read again for context alone; 0 where that was not
            asked for.
        overlapped_bits: what `bits` are with it; None without.
        blocks: [blocks] of the text: its `bits` and `bytes`.
    """

    bits: float = 0.0
    n_bytes: int = 0
    n_tokens: int = 0
    n_documents: int = 0
    overlap: float = 0.0
    overlapped_bits: float | None = None
    blocks: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)

    @property
    def bits_per_byte(self) -> float:
        """The endpoint."""
        return self.bits / self.n_bytes

    @property
    def about(self) -> dict[str, Any]:
        """The record of the whole."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "blocks"}


class _Window(NamedTuple):
    """Predictions of one pass: inputs are tokens start - 1 ... stop - 2, targets one later.

    Attributes:
        start, stop: the targets, as places in the text.
        scored: the first target that is counted; those before it are context.
        document: its number, from 0.
    """

    start: int
    stop: int
    scored: int
    document: int


@dataclass(frozen=True)
class _Text:
    """A text of documents that `end` closes, or a single one where that is None."""

    tokens: Tokens
    end: int | None
    seq_len: int
    division: Division

    def documents(self) -> Iterator[tuple[int, int]]:
        """Yield (first token, the one after the last) of each, its end among them."""
        start = 0
        for stop in [len(self.tokens)] if self.end is None else ends_of(self.tokens, self.end):
            yield start, stop
            start = stop

    def windows(self, stride: int) -> Iterator[_Window]:
        """Yield windows of which each begins `stride` targets after the one before it."""
        opens = self.end is not None
        for number, (first, stop) in enumerate(self.documents()):
            # Of a single text, nothing is before the first token.
            at = begin = first if opens else first + 1
            while at < stop:
                is_first = at == begin
                last = min(at + (self.seq_len if is_first else stride), stop)
                start = at if is_first else at - (self.seq_len - stride)
                yield _Window(start, last, at, number)
                at = last

    def batch(self, windows: list[_Window]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (inputs, targets, which targets count), each [W, T]; short ones are padded.

        What stands after a place changes no prediction at it: that is checked of every model.
        """
        T = max(window.stop - window.start for window in windows)
        inputs_WT, targets_WT = (np.zeros((len(windows), T), np.int64) for _ in range(2))
        scored_WT = np.zeros((len(windows), T), bool)
        for row, window in enumerate(windows):
            n = window.stop - window.start
            ids = np.asarray(self.tokens[max(window.start - 1, 0) : window.stop], np.int64)
            if window.start == 0:
                assert self.end is not None
                ids = np.concatenate([[self.end], ids])
            inputs_WT[row, :n], targets_WT[row, :n] = ids[:-1], ids[1:]
            scored_WT[row, window.scored - window.start : n] = True
        return inputs_WT, targets_WT, scored_WT

    def n_bytes(self, of_token: np.ndarray) -> np.ndarray:
        """Return [blocks] the bytes of the text, from those of each token id."""
        found = np.zeros(self.division.blocks, np.int64)
        for number, (first, stop) in enumerate(self.documents()):
            for start in range(first, stop, CHUNK_TOKENS):
                place = np.arange(start, min(start + CHUNK_TOKENS, stop))
                of = of_token[self.tokens[start : start + len(place)]]
                block = self.division.of_places(number, place)
                found += np.bincount(block, of, minlength=len(found)).astype(np.int64)
        return found


def code_length(
    model: nn.Module,
    dataset: Dataset,
    seq_len: int,
    overlap: float = 0.0,
    precision: Precision = "float32",
) -> CodeLength:
    """Return the code length of the validation text under `model`.

    Losses are in float32, summed in float64. `overlap` is the share of a window that a second
    measurement reads again for context. The model's modes are left as they were. Memory does not
    grow with the text.
    """
    tokens, end = dataset.validation, dataset.tokenizer.end_of_document
    division = Division.of(tokens, seq_len, end)
    if dataset.held_out.n_documents == 1:
        # Other documents of the corpus may have given it an end, which tells nothing.
        tokens = tokens[: len(tokens) - int(tokens[-1] == end)]
        end = None
    text = _Text(tokens, end, seq_len, division)
    with evaluating(model):
        found = _measured(model, text, dataset.vocab_size, seq_len, precision)
        if overlap:
            stride = max(seq_len - round(seq_len * overlap), 1)
            again = _measured(model, text, dataset.vocab_size, stride, precision)
            found.overlap, found.overlapped_bits = overlap, again.bits
    n_bytes = text.n_bytes(dataset.tokenizer.bytes_per_token)
    found.n_bytes, found.n_documents = int(n_bytes.sum()), sum(1 for _ in text.documents())
    found.blocks = {**found.blocks, "bytes": n_bytes}
    return found


def _measured(
    model: nn.Module, text: _Text, vocab_size: int, stride: int, precision: Precision
) -> CodeLength:
    """Return bits and tokens where a window begins every `stride` targets."""
    found, by_block = CodeLength(), np.zeros(text.division.blocks)
    found.blocks = {"bits": by_block}
    if text.end is None:
        found.bits = by_block[0] = math.log2(vocab_size)
        found.n_tokens = 1
    device = next(model.parameters()).device
    most, waiting = windows_per_batch(text.seq_len, vocab_size, device), list[_Window]()
    with products_in(precision, device):
        for window in text.windows(stride):
            waiting.append(window)
            if len(waiting) == most:
                _add(model, text, waiting, found, by_block)
                waiting = []
        if waiting:
            _add(model, text, waiting, found, by_block)
    return found


def _add(
    model: nn.Module,
    text: _Text,
    windows: list[_Window],
    found: CodeLength,
    by_block: np.ndarray,
) -> None:
    """Let the model read `windows`, and add what they come to."""
    inputs_WT, targets_WT, scored_WT = text.batch(windows)
    device = next(model.parameters()).device
    generators = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=generators):
        logits_WTV = model(torch.from_numpy(inputs_WT).to(device))
        losses_WT = nn.functional.cross_entropy(
            logits_WTV.float().flatten(0, 1),
            torch.from_numpy(targets_WT).to(device).flatten(),
            reduction="none",
        )
    bits_WT = losses_WT.cpu().double().numpy().reshape(targets_WT.shape) / math.log(2)
    found.bits += float(bits_WT[scored_WT].sum())
    found.n_tokens += int(scored_WT.sum())
    for row, window in enumerate(windows):
        n, context = window.stop - window.start, window.scored - window.start
        block = text.division.of_places(window.document, np.arange(window.scored, window.stop))
        by_block += np.bincount(block, bits_WT[row, context:n], minlength=len(by_block))
