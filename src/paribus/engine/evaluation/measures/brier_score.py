"""How far the predicted probabilities are from what came."""

from __future__ import annotations

from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import whole
from paribus.metric import ItemSums


@measure(
    "brier_score",
    better="lower",
    label="Brier score",
    unit="",
    items=ItemSums("brier_sum", "predicted"),
    source="Brier 1950, Verification of forecasts expressed in terms of probability",
    parts=(whole,),
    drawings=(),
)
def brier_score(predictions: Predictions) -> tuple[float, int]:
    """The mean of sum_k (p_k - y_k)^2 over the vocabulary: 0 is perfect, 2 certain and wrong."""
    return predictions.brier.sum(dtype="float64"), len(predictions)
