"""The model: the whole GPT in one file, its parts, and initial weights by name."""

from paribus.engine.model.attentions import KeyValueCache as KeyValueCache
from paribus.engine.model.attentions import visible as visible
from paribus.engine.model.attentions.causal import Attention as Attention
from paribus.engine.model.build import build_model as build_model
from paribus.engine.model.build import count_parameters as count_parameters
from paribus.engine.model.build import counted_flops_per_token as counted_flops_per_token
from paribus.engine.model.build import load_parameters as load_parameters
from paribus.engine.model.gpt import GPT as GPT
from paribus.engine.model.gpt import study_positions as study_positions
from paribus.engine.model.initialization import initial_parameters as initial_parameters
from paribus.engine.model.initialization import require_initializers as require_initializers
from paribus.engine.model.layers import Dropout as Dropout
from paribus.engine.model.parts import ModelConfig as ModelConfig
from paribus.engine.model.parts import find_part as find_part
from paribus.engine.model.parts import part as part
from paribus.engine.model.parts import parts as parts
from paribus.engine.model.shared import Seen as Seen
from paribus.engine.model.shared import Shared as Shared
from paribus.engine.model.uses import ParameterUse as ParameterUse
from paribus.engine.model.uses import parameter_uses as parameter_uses
