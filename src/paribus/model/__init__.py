"""The model: the whole GPT on one page, its embedding stage, and initial weights by name."""

from paribus.model.build import build_model, count_parameters, training_flops_per_token
from paribus.model.dropout import Dropout
from paribus.model.embedding_norms import embedding_norm, embedding_norm_names
from paribus.model.gpt import GPT
from paribus.model.initialization import InitialParameter, initial_parameters
from paribus.model.observe import Probe, StepView, capture
from paribus.model.own import source_digests

__all__ = [
    "GPT",
    "Dropout",
    "InitialParameter",
    "Probe",
    "StepView",
    "build_model",
    "capture",
    "count_parameters",
    "embedding_norm",
    "embedding_norm_names",
    "initial_parameters",
    "source_digests",
    "training_flops_per_token",
]
