"""Every held-out measure of a trained model, in one pass over the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from paribus.data import Tokens
from paribus.evaluation.measures import Measure, all_measures
from paribus.evaluation.predictions import Predictions, predict


@dataclass(frozen=True)
class Measurement:
    """One number: a measure's `Row` with the measure's name and unit."""

    measure: str
    part: str
    value: float
    total: float | None
    count: int | None
    unit: str


@dataclass(frozen=True)
class Windows:
    """Sums by window of the text, for inference over items.

    Attributes:
        loss_sum_nats: [windows] float64.
        correct, predicted: [windows] int64, hits and tokens.
    """

    loss_sum_nats: np.ndarray
    correct: np.ndarray
    predicted: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """What was measured on held-out text.

    Attributes:
        rows: every measure's rows. A part that no token belongs to has none; a model that gives
            numbers which are not finite has them here too, as NaN or infinity.
        windows: sums by window.
    """

    rows: tuple[Measurement, ...]
    windows: Windows

    @property
    def scores(self) -> dict[str, float | int]:
        """What is said of the whole text: each measure's value for "all", by its name.

        And the sums behind loss and accuracy: `loss_sum_nats`, `correct`, `predicted`.
        """
        whole = {row.measure: row for row in self.rows if row.part == "all"}
        sums = {
            "loss_sum_nats": whole["validation_loss"].total,
            "correct": int(self.windows.correct.sum()),
            "predicted": int(self.windows.predicted.sum()),
        }
        return sums | {name: row.value for name, row in whole.items()}


def evaluate_heldout(
    model: nn.Module,
    tokens: Tokens,
    seq_len: int,
    *,
    token_classes: np.ndarray,
    characters: np.ndarray,
    own: Sequence[Measure] = (),
) -> Evaluation:
    """Measure `model` on `tokens` [N + 1]: all of `paribus.evaluation.measures`, and `own`.

    `token_classes` [V] are indices into `paribus.data.TOKEN_CLASSES`; `characters` [V] is how many
    characters each token stands for, none for the end of a document. See `predict` for what the
    model is shown and what is left as it was.
    """
    predictions = predict(
        model, tokens, seq_len, token_classes=token_classes, characters=characters
    )
    rows = tuple(
        Measurement(measure.name, row.part, row.value, row.total, row.count, measure.unit)
        for measure in (*all_measures(), *own)
        for row in measure.compute(predictions)
    )
    return Evaluation(rows, _by_window(predictions))


def _by_window(predictions: Predictions) -> Windows:
    window = predictions.window
    return Windows(
        np.bincount(window, predictions.loss_nats),
        np.bincount(window, predictions.correct).astype(np.int64),
        np.bincount(window),
    )
