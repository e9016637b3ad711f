"""Training: replicas of one model in lockstep, their optimizer, loss and schedule."""

from paribus.study.choices import Options
from paribus.training.clipping import clip_factors
from paribus.training.graphs import GRAPHED_STEPS
from paribus.training.groups import is_decayed, optimizer_slots
from paribus.training.losses import Loss, loss
from paribus.training.optimizers import Optimizer, Update, optimizer
from paribus.training.phases import OTHER, PHASES
from paribus.training.product_types import PRODUCTS
from paribus.training.replicas import Replicas
from paribus.training.schedule import learning_rate
from paribus.training.state import MEASURED, WEIGHTS, ReplicaState
from paribus.training.step_metrics import COLUMNS, DRAWINGS, LOSS_SCALING, METRICS, OBJECTIVE
from paribus.training.trainer import Trainer

__all__ = [
    "COLUMNS",
    "DRAWINGS",
    "GRAPHED_STEPS",
    "LOSS_SCALING",
    "MEASURED",
    "METRICS",
    "OBJECTIVE",
    "OTHER",
    "PHASES",
    "PRODUCTS",
    "WEIGHTS",
    "Loss",
    "Optimizer",
    "Options",
    "ReplicaState",
    "Replicas",
    "Trainer",
    "Update",
    "clip_factors",
    "is_decayed",
    "learning_rate",
    "loss",
    "optimizer",
    "optimizer_slots",
]
