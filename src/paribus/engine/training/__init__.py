"""Lockstep training of model replicas: optimizers, losses, schedules and weight averages."""

from paribus.engine.training.averages import Taken, average
from paribus.engine.training.graphs import GRAPHED_STEPS
from paribus.engine.training.groups import optimizer_slots
from paribus.engine.training.losses import loss
from paribus.engine.training.optimizers import Update, optimizer
from paribus.engine.training.schedules import Moment, schedule
from paribus.engine.training.state import MEASURED, WEIGHTS, ReplicaState
from paribus.engine.training.step_metrics import (
    DRAWINGS,
    METRICS,
    OBJECTIVE,
    auxiliary_drawing,
)
from paribus.engine.training.trainer import Trainer
