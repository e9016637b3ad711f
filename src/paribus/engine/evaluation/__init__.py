"""Held-out measurements of a trained model, in one pass over the text."""

from paribus.engine.evaluation.heldout import Evaluation, evaluate_on
from paribus.engine.evaluation.measures import Measure, Row, all_measures, measure, own_measures
from paribus.engine.evaluation.predictions import TEMPERATURES, Predictions, predict

__all__ = [
    "TEMPERATURES",
    "Evaluation",
    "Measure",
    "Predictions",
    "Row",
    "all_measures",
    "evaluate_on",
    "measure",
    "own_measures",
    "predict",
]
