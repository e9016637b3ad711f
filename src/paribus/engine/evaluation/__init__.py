"""Held-out measurements of a trained model: one pass over the text, then one file a measure."""

from paribus.engine.evaluation.blocks import Blocks
from paribus.engine.evaluation.custom_measures import OwnMeasure, own_measures, require_equal
from paribus.engine.evaluation.heldout import Evaluation, Measurement, evaluate_heldout
from paribus.engine.evaluation.heldout_loss import LossSum, heldout_loss, heldout_losses_together
from paribus.engine.evaluation.measures import Measure, all_measures, measure
from paribus.engine.evaluation.on_dataset import evaluate_on
from paribus.engine.evaluation.predictions import TEMPERATURES, Predictions, predict
from paribus.engine.evaluation.text_parts import Row

__all__ = [
    "TEMPERATURES",
    "Blocks",
    "Evaluation",
    "LossSum",
    "Measure",
    "Measurement",
    "OwnMeasure",
    "Predictions",
    "Row",
    "all_measures",
    "evaluate_heldout",
    "evaluate_on",
    "heldout_loss",
    "heldout_losses_together",
    "measure",
    "own_measures",
    "predict",
    "require_equal",
]
