"""The model: the whole GPT in one file, its parts, and initial weights by name."""

from paribus.engine.model.attentions import KeyValueCache, visible
from paribus.engine.model.attentions.causal import Attention
from paribus.engine.model.build import (
    build_model,
    count_parameters,
    counted_flops_per_token,
    load_parameters,
)
from paribus.engine.model.gpt import GPT, study_positions
from paribus.engine.model.initialization import (
    initial_parameters,
    require_initializers,
)
from paribus.engine.model.layers import Dropout
from paribus.engine.model.parts import ModelConfig, Part, describe_parts, find_part, part, parts
from paribus.engine.model.shared import Seen, Shared
from paribus.engine.model.uses import ParameterUse, parameter_uses

__all__ = [
    "GPT",
    "Attention",
    "Dropout",
    "KeyValueCache",
    "ModelConfig",
    "ParameterUse",
    "Part",
    "Seen",
    "Shared",
    "build_model",
    "count_parameters",
    "counted_flops_per_token",
    "describe_parts",
    "find_part",
    "initial_parameters",
    "load_parameters",
    "parameter_uses",
    "part",
    "parts",
    "require_initializers",
    "study_positions",
    "visible",
]
