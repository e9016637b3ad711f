"""The engine: a stack of replicas trained in lockstep, its optimizer and its schedule."""

from paribus.training.engine import COLUMNS, MEASURED, ReplicaState, Stack
from paribus.training.optimizer import AdamW, clip_factors, is_decayed
from paribus.training.phases import OTHER, PHASES
from paribus.training.schedule import learning_rate

__all__ = [
    "COLUMNS",
    "MEASURED",
    "OTHER",
    "PHASES",
    "AdamW",
    "ReplicaState",
    "Stack",
    "clip_factors",
    "is_decayed",
    "learning_rate",
]
