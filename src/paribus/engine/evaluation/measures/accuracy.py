"""How often the most probable token is the right one."""

from __future__ import annotations

import numpy as np

from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import BREAKDOWN, breakdown
from paribus.metric import ItemSums


@measure(
    "validation_accuracy",
    better="higher",
    label="next-token accuracy",
    items=ItemSums("correct", "predicted", step=1),
    uniform="1/V",
    unit="share",
    source="top-1 accuracy: hits over predictions",
    parts=BREAKDOWN,
    drawings=(),
)
def validation_accuracy(predictions: Predictions) -> np.ndarray:
    """Hits over tokens."""
    return breakdown(predictions, predictions.correct)
