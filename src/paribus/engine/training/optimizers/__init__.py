"""Optimizers, one file each behind one decorator.

An optimizer is a function that makes one step in place, from an `Update`, for the parameters of all
replicas at once. A new file in this folder is known by its name; a user's own is named in the study
(`training.optimizer.name = "ideas.py:my_optimizer"`). Weight decay, clipping, schedules, parameter
groups, checkpoints and replicas that have diverged are not its business.
"""

from paribus.engine.training.optimizers.declare_optimizer import (
    Optimizer,
    Update,
    find_optimizer,
    optimizer,
)
from paribus.study.choices import Options

__all__ = ["Optimizer", "Options", "Update", "find_optimizer", "optimizer"]
