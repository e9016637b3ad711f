"""The two axes of a reliability diagram: confidence and accuracy by bin of confidence."""

from __future__ import annotations

import numpy as np

from paribus.drawing import Drawing
from paribus.engine.evaluation.bins import equal_width
from paribus.engine.evaluation.measures import measure
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import confidence_bins, grouped

SOURCE = "reliability diagram, Guo et al. 2017 (arXiv 1706.04599), section 2"


@measure(
    "reliability_confidence", unit="share", source=SOURCE, parts=(confidence_bins,), drawings=()
)
def reliability_confidence(predictions: Predictions) -> np.ndarray:
    """The mean of the highest probabilities in the bin."""
    return _by_bin(predictions, predictions.confidence)


@measure(
    "reliability_accuracy",
    unit="share",
    source=SOURCE,
    parts=(confidence_bins,),
    drawings=(
        Drawing(
            "bin {}",
            "against",
            "Reliability",
            "accuracy (share)",
            "evaluation",
            across="confidence (share)",
            against="reliability_confidence/bin {}",
            note="Accuracy of the most probable token against its probability, by bins of equal "
            "width: below the diagonal a model is too sure of itself.",
            in_text=True,
        ),
    ),
)
def reliability_accuracy(predictions: Predictions) -> np.ndarray:
    """The share of hits in the bin."""
    return _by_bin(predictions, predictions.correct)


def _by_bin(predictions: Predictions, totals: np.ndarray) -> np.ndarray:
    n = len(confidence_bins(predictions.seq_len))
    return grouped(n, equal_width(predictions.confidence), totals)
