"""Training losses, one file each behind one decorator.

A loss is a function from logits to one number for every target, in nats; their mean is learned
from. A new file in this folder is known by its name; a user's own is named in the study
(`training.loss.name = "ideas.py:my_loss"`). The plain cross-entropy is recorded beside it, and is
what divergence, events and every evaluation are judged on.
"""

from paribus.engine.training.losses.declare_loss import Loss, TrainingLoss, find_loss, loss
from paribus.study.choices import Options

__all__ = ["Loss", "Options", "TrainingLoss", "find_loss", "loss"]
