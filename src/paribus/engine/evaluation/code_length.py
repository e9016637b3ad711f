"""How many bits a model takes to tell a held-out text, per byte: the same for every tokenizer.

Losses per token cannot be compared between tokenizers: a token is another piece of text in each.
The code length of the text can be: the sum of -log2 p over all tokens of whole documents, over the
UTF-8 bytes that these are (Gao et al. 2020, The Pile, section 3.1). The rule is one for all:

- Documents are read one by one, from their first token on, in windows of seq_len predictions that
  do not overlap. Where the held-out text has several documents, the first token of each is
  predicted from an end, as of the document before it; that of a single document costs log2 V bits,
  as if all tokens were equally probable. What is trained on plays no part in this.
- The bits of ends count where the held-out text has several documents: it cannot be told without.
- Each is a code that could be decoded, so the sum is a proper code length. It is that of one way to
  cut the text into tokens, an upper bound on the improbability of the text itself.

Where claims are about new text, bits and bytes are added up by the same blocks of it as losses.

What it costs to begin windows anew is counted (`shortened`), and measured where windows that
overlap are asked for.

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
from paribus.engine.data.tokens import CHUNK_TOKENS, part
from paribus.engine.evaluation.blocks import Division
from paribus.engine.evaluation.predictions import Precision, products_in, windows_per_batch
from paribus.metric import ItemSums, Metric

BITS_PER_BYTE = Metric(
    *("bits_per_byte", "bits per byte", "bits/byte", "lower", "evaluation"),
    items=ItemSums("bits", "bytes"),
)


@dataclass(frozen=True)
class CodeLength:
    """The code length of a text.

    Attributes:
        bits: of all its tokens.
        n_bytes, n_tokens, n_documents: of the text; tokens with the ends that count.
        first_bits: bits of the first tokens of documents, among `bits`.
        end_bits: bits of their ends, among `bits`.
        shortened: tokens that were predicted from fewer tokens before them than the document and
            the model's window have, since a window begins anew.
        overlap: the share of a window that was read again for context alone; 0 where that was not
            asked for.
        overlapped_bits: what `bits` are with it; None without.
        blocks: [blocks] of the text: its `bits` and `bytes`.
    """

    bits: float
    n_bytes: int
    n_tokens: int
    n_documents: int
    first_bits: float
    end_bits: float
    shortened: int
    overlap: float
    overlapped_bits: float | None
    blocks: Mapping[str, np.ndarray] = field(compare=False)

    @property
    def bits_per_byte(self) -> float:
        """The endpoint."""
        return self.bits / self.n_bytes

    @property
    def about(self) -> dict[str, Any]:
        """What records hold of the whole."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "blocks"}


class _Window(NamedTuple):
    """Predictions of one pass: inputs are tokens start - 1 ... stop - 2, targets one later.

    Attributes:
        start, stop: the targets, as places in the text.
        scored: the first target that is counted; those before it are context.
        opens: whether the first target is the first token of a document.
        document: its number, from 0.
    """

    start: int
    stop: int
    scored: int
    opens: bool
    document: int


def code_length(
    model: nn.Module,
    dataset: Dataset,
    seq_len: int,
    overlap: float = 0.0,
    precision: Precision = "float32",
) -> CodeLength:
    """The code length of the validation text under `model`: losses in float32, summed in float64.

    `overlap` is the share of a window that a second measurement reads again for context. The
    model's modes are left as they were. Memory does not grow with the text.
    """
    tokens, end = dataset.validation, dataset.tokenizer.end_of_document
    division = Division.of(tokens, seq_len, end)
    if dataset.held_out.n_documents == 1:
        # Other documents of the corpus may have given it an end, which tells nothing.
        tokens = part(tokens, 0, len(tokens) - int(tokens[len(tokens) - 1] == end))
        end = None
    sums = _Sums(model, tokens, seq_len, dataset.vocab_size, end, division, precision)
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        plain = sums.measure(seq_len)
        overlapped = None
        if overlap:
            overlapped = sums.measure(max(seq_len - round(seq_len * overlap), 1)).bits
    finally:
        for module, mode in modes.items():
            module.training = mode
    size = dataset.tokenizer.bytes_per_token
    n_bytes = np.zeros(division.blocks, np.int64)
    for number, (first, stop) in enumerate(sums.documents()):
        for start in range(first, stop, CHUNK_TOKENS):
            place = np.arange(start, min(start + CHUNK_TOKENS, stop))
            of = size[tokens[start : start + len(place)]]
            n_bytes += np.bincount(
                division.of_places(number, place), of, minlength=division.blocks
            ).astype(np.int64)
    return CodeLength(
        plain.bits,
        int(n_bytes.sum()),
        plain.n_tokens,
        sum(1 for _ in sums.documents()),
        plain.first_bits,
        plain.end_bits,
        plain.shortened,
        overlap,
        overlapped,
        {"bits": plain.by_block, "bytes": n_bytes},
    )


@dataclass
class _Sum:
    by_block: np.ndarray
    bits: float = 0.0
    n_tokens: int = 0
    first_bits: float = 0.0
    end_bits: float = 0.0
    shortened: int = 0


@dataclass(frozen=True)
class _Sums:
    """A text and a model, to be measured in windows that overlap more or less."""

    model: nn.Module
    tokens: Tokens
    seq_len: int
    vocab_size: int
    end: int | None
    division: Division
    precision: Precision

    def documents(self) -> Iterator[tuple[int, int]]:
        """(first token, the one after the last) of each, its end among them."""
        if self.end is None:
            yield 0, len(self.tokens)
            return
        start = 0
        for stop in ends_of(self.tokens, self.end):
            yield start, stop
            start = stop

    def measure(self, stride: int) -> _Sum:
        """Sums where a window begins every `stride` targets."""
        total = _Sum(np.zeros(self.division.blocks))
        if self.end is None:
            total.first_bits = total.bits = total.by_block[0] = math.log2(self.vocab_size)
            total.n_tokens = 1
        waiting: list[_Window] = []
        device = next(self.model.parameters()).device
        most = windows_per_batch(self.seq_len, self.vocab_size, device)
        with products_in(self.precision, device):
            for window in self._windows(stride):
                waiting.append(window)
                if len(waiting) == most:
                    self._add(waiting, total)
                    waiting = []
            if waiting:
                self._add(waiting, total)
        return total

    def _windows(self, stride: int) -> Iterator[_Window]:
        for number, (first, stop) in enumerate(self.documents()):
            opens = self.end is not None
            # Of a single text, nothing is before the first token.
            at = begin = first if opens else first + 1
            while at < stop:
                last = min(at + (self.seq_len if at == begin else stride), stop)
                start = at if at == begin else at - (self.seq_len - stride)
                yield _Window(start, last, at, opens and at == begin, number)
                at = last

    def _add(self, windows: list[_Window], total: _Sum) -> None:
        """Let the model read `windows`, and add what they come to."""
        inputs_WT, targets_WT, scored_WT = self._batch(windows)
        device = next(self.model.parameters()).device
        generators = [device] if device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices=generators):
            logits_WTV = self.model(torch.from_numpy(inputs_WT).to(device))
            losses_WT = nn.functional.cross_entropy(
                logits_WTV.float().flatten(0, 1),
                torch.from_numpy(targets_WT).to(device).flatten(),
                reduction="none",
            )
        bits_WT = losses_WT.cpu().double().numpy().reshape(targets_WT.shape) / math.log(2)
        total.bits += float(bits_WT[scored_WT].sum())
        total.n_tokens += int(scored_WT.sum())
        if self.end is not None:
            total.end_bits += float(bits_WT[scored_WT & (targets_WT == self.end)].sum())
        for row, window in enumerate(windows):
            block = self.division.of_places(window.document, np.arange(window.scored, window.stop))
            bits = bits_WT[row, window.scored - window.start : window.stop - window.start]
            total.by_block += np.bincount(block, bits, minlength=len(total.by_block))
            if window.opens:
                total.first_bits += float(bits_WT[row, 0])
            else:
                # In the k-th place, k tokens are seen; with more, the window is full.
                first = window.scored - window.start + 1
                last = window.stop - window.start
                is_first = self.end is None and window.start == 1
                total.shortened += (
                    0 if is_first else max(min(last, self.seq_len - 1) - first + 1, 0)
                )

    def _batch(self, windows: list[_Window]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(inputs, targets, which targets count), each [W, T]; short windows end with padding.

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
