"""GPT model, its parts, and their initialization."""

from paribus.engine.model.attentions import KeyValueCache, visible
from paribus.engine.model.attentions.causal import Attention
from paribus.engine.model.build import (
    build_model,
    count_parameters,
    counted_flops_per_token,
    load_parameters,
)
from paribus.engine.model.gpt import GPT, study_positions
from paribus.engine.model.initialization import initial_parameters, require_initializers
from paribus.engine.model.layers import Dropout
from paribus.engine.model.parts import ModelConfig, part
from paribus.engine.model.shared import Shared
from paribus.engine.model.uses import ParameterUse, parameter_uses
