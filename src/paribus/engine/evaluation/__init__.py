"""Evaluation of trained models on held-out text."""

from paribus.engine.evaluation.heldout import Evaluation, evaluate_on
from paribus.engine.evaluation.measures import all_measures, measure, own_measures
from paribus.engine.evaluation.predictions import Predictions
