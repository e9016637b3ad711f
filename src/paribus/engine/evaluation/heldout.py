"""Evaluation of a model on held-out text, with all measures or only the loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from paribus.engine.data import Dataset, Tokens
from paribus.engine.evaluation.blocks import SUMS, Division
from paribus.engine.evaluation.measures import Measure, Row, all_measures
from paribus.engine.evaluation.predictions import (
    Precision,
    evaluating,
    predict,
    text_batches,
    windows_per_batch,
)
from paribus.errors import ParibusError


@dataclass(frozen=True)
class Evaluation:
    """Results of evaluating a model on held-out text.

    Attributes:
        rows: values of all measures, which may be NaN or infinite. Parts without tokens have none.
        division: division of the text into blocks.
        blocks: per-block sums, [n_blocks] each, keyed by column of SUMS.
    """

    rows: tuple[Row, ...]
    division: Division
    blocks: dict[str, np.ndarray]

    @property
    def scores(self) -> dict[str, float | int]:
        """Scores on the whole text, keyed by measure name.

        Also contains the totals `loss_sum_nats` (nats), `correct` and `predicted` (tokens).
        """
        totals = {row.measure: row for row in self.rows if row.part == "all"}
        sums = {
            "loss_sum_nats": totals["validation_loss"].total,
            "correct": int(self.blocks["correct"].sum()),
            "predicted": int(self.blocks["predicted"].sum()),
        }
        return sums | {name: row.value for name, row in totals.items()}  # type: ignore


def evaluate_on(
    model: nn.Module,
    dataset: Dataset,
    tokens: Tokens,
    seq_len: int,
    own: Sequence[Measure] = (),
    precision: Precision = "float32",
    *,
    strict: bool = False,
) -> Evaluation:
    """Evaluate a model on held-out tokens with all built-in and the given custom measures.

    Memory use does not grow with the text, because only sums over chunks are kept. See `predict`
    for the windows and for the state that is restored afterwards.

    Args:
        model: maps token ids [W, T] to logits [W, T, V].
        dataset: data set that provides the tokenizer and the token classes.
        tokens: [N + 1] token ids; the first one is context only.
        seq_len: maximum context length, in tokens.
        own: custom measures.
        precision: precision of matrix products.
        strict: whether to raise ParibusError if a custom measure fails. If False, the measure has
            no rows, so that a faulty measure does not waste a trained model.
    """
    tokenizer = dataset.tokenizer
    division = Division.divide(tokens, seq_len, tokenizer.end_of_document)
    totals = np.zeros((len(SUMS), division.n_blocks))
    sums: dict[Measure, Any] = dict.fromkeys((*all_measures(), *own), 0.0)
    of_token = {
        "token_class": dataset.token_classes,
        "characters": tokenizer.characters_per_token,
        "n_bytes": tokenizer.bytes_per_token,
    }
    predicted = predict(model, tokens, seq_len, of_token, precision)

    def tried(measure: Measure, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function`, but return None if a custom measure fails and `strict` is False."""
        try:
            return function(*args)
        except Exception as error:
            if measure not in own:
                raise
            if strict:
                raise ParibusError(
                    f"measure '{measure.name}' failed with {type(error).__name__}: {error}; fix "
                    "the measure, or remove it from evaluation.own",
                    code="own_code",
                ) from error

    with contextlib.closing(predicted) as chunks:
        for chunk in chunks:
            values = [getattr(chunk, name, None) for _, name in SUMS.values()]
            totals += division.add(chunk.start + 1, *values)
            sums = {
                measure: total + np.asarray(of_chunk, np.float64)
                for measure, total in sums.items()
                if (of_chunk := tried(measure, measure.function, chunk)) is not None
            }
    columns = {
        name: total.astype(kind)
        for total, (name, (kind, _)) in zip(totals, SUMS.items(), strict=True)
    }
    rows = [
        replace(row, value=float(row.value), measure=measure.name, unit=measure.unit)
        for measure, total in sums.items()
        for row in tried(measure, measure.rows, total, seq_len) or ()
    ]
    return Evaluation(tuple(rows), division, columns)


def heldout_loss(model: nn.Module, tokens: Tokens, seq_len: int, vocab_size: int) -> float:
    """Return the total cross-entropy of `model` on tokens[1:] in nats, in evaluation mode.

    Windows of up to `seq_len` tokens do not overlap, and losses are summed in float64 in text
    order. The result equals that of `predict` up to rounding. Global generators are restored.
    """
    device, nats = next(model.parameters()).device, 0.0
    windows = windows_per_batch(seq_len, vocab_size, device)
    with evaluating(model):
        for batch in text_batches(tokens, seq_len, windows):
            inputs_WT, targets_WT = (torch.from_numpy(ids).to(device) for ids in batch)
            logits_NV = model(inputs_WT).flatten(0, 1).float()
            losses_N = F.cross_entropy(logits_NV, targets_WT.flatten(), reduction="none")
            nats += float(losses_N.cpu().numpy().sum(dtype=np.float64))
    return nats
