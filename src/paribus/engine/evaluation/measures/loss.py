"""How improbable the text is to the model: loss, and perplexity as its exponential."""

from __future__ import annotations

import math

import numpy as np

from paribus.drawing import Drawing
from paribus.engine.data import TOKEN_CLASSES
from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import BREAKDOWN, Row, breakdown
from paribus.metric import ItemSums


def _of_losses(sums: np.ndarray, seq_len: int) -> list[Row]:
    losses = validation_loss.rows(sums, seq_len)
    return [Row(row.part, _exp(row.value)) for row in losses]


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


@measure(
    "validation_loss",
    better="lower",
    items=ItemSums("loss_sum_nats", "predicted"),
    uniform="log V",
    unit="nats/token",
    source="cross-entropy, Shannon 1948",
    parts=BREAKDOWN,
    drawings=(
        Drawing(
            "position {}",
            "curve",
            "Loss by position in the window",
            "loss (nats/token)",
            "evaluation",
            across="position in the window (tokens)",
        ),
        Drawing(
            "{}",
            "parts",
            "Loss by class of the predicted token",
            "loss (nats/token)",
            "evaluation",
            parts=TOKEN_CLASSES,
        ),
    ),
)
def validation_loss(predictions: Predictions) -> np.ndarray:
    """The mean of -log p(token | context)."""
    return breakdown(predictions, predictions.loss_nats)


@measure(
    "validation_perplexity",
    better="lower",
    digits=2,
    uniform="V",
    unit="",
    source="Jelinek, Mercer, Bahl & Baker 1977",
    parts=BREAKDOWN,
    finish=_of_losses,
    drawings=(),
)
def validation_perplexity(predictions: Predictions) -> np.ndarray:
    """exp(loss) of the same part; infinite beyond the range of a float. No ratio of sums."""
    return breakdown(predictions, predictions.loss_nats)
