"""Code length of held-out text in bits per byte, comparable between tokenizers.

Losses per token cannot be compared between tokenizers, because their tokens differ. The code length
can: the sum of -log2 p over all tokens of whole documents, divided by their UTF-8 bytes (Gao et al.
2020, The Pile, section 3.1). The same rules apply to every model:

- Documents are read one by one, from their first token on, in windows of seq_len predictions that
  do not overlap. If the held-out text has several documents, the first token of each is predicted
  from an end-of-document token. The first token of a single document costs log2 V bits, as under a
  uniform distribution. The training text does not affect this.
- End-of-document tokens of several documents add bits, but no bytes.
- The text can be decoded from such a code, so the sum is a proper code length. It belongs to one
  tokenization, so it is an upper bound on -log2 of the probability of the text itself.

For claims about new text, bits and bytes are summed over the same blocks as losses. An optional
second measurement with overlapping windows shows the cost of windows without context.

Axes: W windows of a batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from paribus.engine.data import Dataset, Tokens
from paribus.engine.data.order import ends_of
from paribus.engine.data.tokens import chunks
from paribus.engine.evaluation.blocks import Division
from paribus.engine.evaluation.predictions import (
    Precision,
    evaluating,
    products_in,
    token_losses,
    windows_per_batch,
)
from paribus.metric import ItemSums, Metric

BITS_PER_BYTE = Metric(
    *("bits_per_byte", "bits per byte", "bits/byte", "lower", "evaluation"),
    items=ItemSums("bits", "bytes"),
)


def code_length(
    model: nn.Module,
    dataset: Dataset,
    seq_len: int,
    overlap: float = 0.0,
    precision: Precision = "float32",
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the code length of the validation text under `model`, and its blocks.

    The former has `bits`; `n_bytes`, `n_tokens` (with the ends that add bits) and `n_documents` of
    the text; `overlap`, the share of a window that a second measurement reads only as context, and
    `overlapped_bits`, its result or None. The latter has `bits` and `bytes` of each block.
    Losses are in float32, summed in float64. The training modes of the model's modules are
    restored. Memory does not grow with the text.
    """
    tokens, end = dataset.validation, dataset.tokenizer.end_of_document
    division, n_documents = Division.of(tokens, seq_len, end), 1
    if dataset.held_out.n_documents == 1:
        # Other documents of the corpus may have given it an end, which tells nothing.
        tokens, end = tokens[: len(tokens) - (tokens[-1] == end)], None
    elif end is not None:
        n_documents = sum(1 for _ in ends_of(tokens, end))
    of_token, n_bytes, place = dataset.tokenizer.bytes_per_token, np.zeros(division.n_blocks), 0
    for ids in chunks(tokens):
        n_bytes += division.add(place, of_token[ids])[0]
        place += len(ids)
    device = next(model.parameters()).device
    batch_size = windows_per_batch(seq_len, dataset.vocab_size, device)

    def measure(stride: int) -> np.ndarray:
        """Return the bits of each block, with a window every `stride` targets."""
        bits = np.zeros(division.n_blocks)
        if end is None:
            bits[0] = math.log2(dataset.vocab_size)
        windows = _windows(tokens, end, seq_len, stride)
        with evaluating(model), products_in(precision, device):
            while batch := list(islice(windows, batch_size)):
                inputs_WT, targets_WT = _batch(tokens, end, batch)
                losses_WT = token_losses(model, inputs_WT, targets_WT).reshape(targets_WT.shape)
                bits_WT = losses_WT.astype(np.float64) / math.log(2)
                for of_window, window in zip(bits_WT, batch, strict=True):
                    own = of_window[window.scored - window.start : window.stop - window.start]
                    bits += division.add(window.scored, own)[0]
        return bits

    bits, overlapped_bits = measure(seq_len), None
    if overlap:
        overlapped_bits = float(measure(max(seq_len - round(seq_len * overlap), 1)).sum())
    record = {
        "bits": float(bits.sum()),
        "n_bytes": int(n_bytes.sum()),
        "n_tokens": len(tokens),
        "n_documents": n_documents,
        "overlap": overlap,
        "overlapped_bits": overlapped_bits,
    }
    return record, {"bits": bits, "bytes": n_bytes.astype(np.int64)}


class _Window(NamedTuple):
    """A window of predictions: inputs are tokens start - 1 ... stop - 2, targets one later.

    Attributes:
        start, stop: positions of the targets in the text.
        scored: the first target that is counted; those before it are context.
    """

    start: int
    stop: int
    scored: int


def _windows(tokens: Tokens, end: int | None, seq_len: int, stride: int) -> Iterator[_Window]:
    """Yield windows that begin `stride` targets apart."""
    # Of a single text, nothing is before the first token.
    first = 0 if end is not None else 1
    for stop in [len(tokens)] if end is None else ends_of(tokens, end):
        at = first
        while at < stop:
            context = 0 if at == first else seq_len - stride
            last = min(at - context + seq_len, stop)
            yield _Window(at - context, last, at)
            at = last
        first = stop


def _batch(
    tokens: Tokens, end: int | None, windows: list[_Window]
) -> tuple[np.ndarray, np.ndarray]:
    """Return (inputs, targets), each [W, T]; short windows are padded.

    Padding does not change the predictions before it; the causality test checks that.
    """
    T = max(window.stop - window.start for window in windows)
    inputs_WT, targets_WT = (np.zeros((len(windows), T), np.int64) for _ in range(2))
    for row, (start, stop, _) in enumerate(windows):
        ids = tokens[max(start - 1, 0) : stop].astype(np.int64)
        inputs_WT[row, : stop - start] = ids[:-1] if start else [end, *ids[:-1]]  # type: ignore
        targets_WT[row, : stop - start] = ids[start - stop :]
    return inputs_WT, targets_WT
