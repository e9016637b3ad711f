"""The model: the whole GPT on one page, its parts one file each, and initial weights by name."""

from paribus.engine.model.attention import Attention, visible
from paribus.engine.model.build import (
    build_model,
    count_parameters,
    load_parameters,
    weight_shapes,
)
from paribus.engine.model.config import ModelConfig
from paribus.engine.model.contract import require_parts, unused_positions
from paribus.engine.model.dropout import Dropout
from paribus.engine.model.flops import (
    Flops,
    counted_flops_per_token,
    training_flops,
    training_flops_per_token,
)
from paribus.engine.model.gpt import GPT, study_positions
from paribus.engine.model.initialization import (
    InitialParameter,
    InitialRule,
    initial_parameters,
    initial_rules,
    require_initializers,
)
from paribus.engine.model.key_value_cache import KeyValueCache
from paribus.engine.model.parts import Part, describe_parts, find_part, part, parts
from paribus.engine.model.uses import ParameterUse, parameter_uses, undeclared_projections

__all__ = [
    "GPT",
    "Attention",
    "Dropout",
    "Flops",
    "InitialParameter",
    "InitialRule",
    "KeyValueCache",
    "ModelConfig",
    "ParameterUse",
    "Part",
    "build_model",
    "count_parameters",
    "counted_flops_per_token",
    "describe_parts",
    "find_part",
    "initial_parameters",
    "initial_rules",
    "load_parameters",
    "parameter_uses",
    "part",
    "parts",
    "require_initializers",
    "require_parts",
    "study_positions",
    "training_flops",
    "training_flops_per_token",
    "undeclared_projections",
    "unused_positions",
    "visible",
    "weight_shapes",
]
