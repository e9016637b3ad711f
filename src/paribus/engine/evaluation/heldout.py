"""Every held-out measure of a trained model, in one pass over the text."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from paribus.engine.data import Tokens
from paribus.engine.evaluation.blocks import Blocks, BlockSums
from paribus.engine.evaluation.custom_measures import OwnMeasure, OwnSums
from paribus.engine.evaluation.measures import Measure, all_measures
from paribus.engine.evaluation.predictions import Precision, predict
from paribus.engine.evaluation.text_parts import Row


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
class Evaluation:
    """What was measured on held-out text.

    Attributes:
        rows: every measure's rows. A part that no token belongs to has none; a model that gives
            numbers which are not finite has them here too, as NaN or infinity.
        blocks: sums by item of the text.
    """

    rows: tuple[Measurement, ...]
    blocks: Blocks

    @property
    def scores(self) -> dict[str, float | int]:
        """What is said of the whole text: each measure's value for "all", by its name.

        And the sums behind loss and accuracy: `loss_sum_nats`, `correct`, `predicted`.
        """
        whole = {row.measure: row for row in self.rows if row.part == "all"}
        sums = {
            "loss_sum_nats": whole["validation_loss"].total,
            "correct": int(self.blocks.correct.sum()),
            "predicted": int(self.blocks.predicted.sum()),
        }
        return sums | {name: row.value for name, row in whole.items()}


def evaluate_heldout(
    model: nn.Module,
    tokens: Tokens,
    seq_len: int,
    *,
    token_classes: np.ndarray,
    characters: np.ndarray,
    end_of_document: int | None = None,
    own: Sequence[OwnMeasure] = (),
    precision: Precision = "float32",
) -> Evaluation:
    """Measure `model` on `tokens` [N + 1]: all of `paribus.engine.evaluation.measures`, and `own`.

    `token_classes` [V] are indices into `engine.data.TOKEN_CLASSES`; `characters` [V] is how many
    characters each token stands for, none for the `end_of_document`, the id of that token where
    there is one. What is kept of a chunk of the text are sums. See `predict` for what the model is
    shown and what is left as it was.
    """
    measures, blocks = all_measures(), BlockSums(tokens, seq_len, end_of_document)
    sums: list[np.ndarray | None] = [None] * len(measures)
    of_own = [OwnSums(measure, blocks.n_blocks) for measure in own]
    about = {"token_classes": token_classes, "characters": characters}
    predicted = predict(model, tokens, seq_len, **about, precision=precision)
    with contextlib.closing(predicted) as chunks:
        for chunk in chunks:
            block = blocks.add(chunk)
            sums = [measure.added(of, chunk) for measure, of in zip(measures, sums, strict=True)]
            for one in of_own:
                one.add(chunk, block)
    is_finite = math.isfinite(blocks.blocks({}).loss_sum_nats.sum())
    rows: list[tuple[Measure, list[Row]]] = [
        (measure, measure.rows(of, seq_len))
        for measure, of in zip(measures, sums, strict=True)
        if of is not None
    ]
    others: dict[str, np.ndarray] = {}
    for one in of_own:
        of_one, columns = one.finish(seq_len, is_finite)
        rows.append((one.of.measure, of_one))
        others |= columns
    return Evaluation(
        tuple(
            Measurement(measure.name, row.part, row.value, row.total, row.count, measure.unit)
            for measure, of_measure in rows
            for row in of_measure
        ),
        blocks.blocks(others),
    )
