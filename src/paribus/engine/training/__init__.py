"""Training: replicas of one model in lockstep, their optimizer, loss and schedule."""

from paribus.engine.training.averages import Taken, average
from paribus.engine.training.graphs import GRAPHED_STEPS
from paribus.engine.training.groups import is_decayed, optimizer_slots
from paribus.engine.training.losses import Loss, loss
from paribus.engine.training.optimizers import Optimizer, Update, optimizer
from paribus.engine.training.safeguards import clip_factors
from paribus.engine.training.schedules import Moment, Scheduled, schedule
from paribus.engine.training.state import MEASURED, WEIGHTS, ReplicaState
from paribus.engine.training.step_metrics import (
    COLUMNS,
    DRAWINGS,
    LOSS_SCALING,
    METRICS,
    OBJECTIVE,
    auxiliary_drawing,
)
from paribus.engine.training.trainer import Trainer
from paribus.study.choices import Options

__all__ = [
    "COLUMNS",
    "DRAWINGS",
    "GRAPHED_STEPS",
    "LOSS_SCALING",
    "MEASURED",
    "METRICS",
    "OBJECTIVE",
    "WEIGHTS",
    "Loss",
    "Moment",
    "Optimizer",
    "Options",
    "ReplicaState",
    "Scheduled",
    "Taken",
    "Trainer",
    "Update",
    "auxiliary_drawing",
    "average",
    "clip_factors",
    "is_decayed",
    "loss",
    "optimizer",
    "optimizer_slots",
    "schedule",
]
