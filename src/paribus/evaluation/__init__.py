"""Held-out measurements of a trained model: one pass over the text, then one file a measure."""

from paribus.evaluation.heldout import Evaluation, Measurement, evaluate_heldout
from paribus.evaluation.measures import Measure, all_measures, measure
from paribus.evaluation.own import own_measures, require_equal
from paribus.evaluation.parts import Row
from paribus.evaluation.predictions import TEMPERATURES, Predictions, predict

__all__ = [
    "TEMPERATURES",
    "Evaluation",
    "Measure",
    "Measurement",
    "Predictions",
    "Row",
    "all_measures",
    "evaluate_heldout",
    "measure",
    "own_measures",
    "predict",
    "require_equal",
]
