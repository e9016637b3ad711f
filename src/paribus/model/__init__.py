"""The model: the whole GPT on one page, its embedding stage, and initial weights by name."""

from paribus.model.build import (
    build_model,
    count_parameters,
    load_parameters,
    training_flops_per_token,
    weight_shapes,
)
from paribus.model.cache import KeyValueCache
from paribus.model.dropout import Dropout
from paribus.model.embedding_norms import embedding_norm, embedding_norm_class, embedding_norm_names
from paribus.model.gpt import GPT
from paribus.model.initialization import (
    InitialParameter,
    InitialRule,
    initial_parameters,
    initial_rules,
    require_initializers,
)
from paribus.model.observe import EVERY_BLOCK, LOGITS, Column, Probe, StepView, capture, is_there
from paribus.model.rows import Rows, role
from paribus.model.uses import ParameterUse, parameter_uses, undeclared_projections

__all__ = [
    "EVERY_BLOCK",
    "GPT",
    "LOGITS",
    "Column",
    "Dropout",
    "InitialParameter",
    "InitialRule",
    "KeyValueCache",
    "ParameterUse",
    "Probe",
    "Rows",
    "StepView",
    "build_model",
    "capture",
    "count_parameters",
    "embedding_norm",
    "embedding_norm_class",
    "embedding_norm_names",
    "initial_parameters",
    "initial_rules",
    "is_there",
    "load_parameters",
    "parameter_uses",
    "require_initializers",
    "role",
    "training_flops_per_token",
    "undeclared_projections",
    "weight_shapes",
]
