"""The default training loss: cross-entropy, with optional label smoothing and z-loss.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from paribus.engine.training.losses import TrainingLoss, loss
from paribus.study.choices import Options


class CrossEntropyOptions(Options):
    """Label smoothing (Szegedy et al. 2016) and the weight of log^2 Z (Chowdhery et al. 2022)."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    z_loss: Annotated[float, Field(ge=0)] = 0.0


@loss("cross_entropy", options=CrossEntropyOptions, source="definition")
def cross_entropy(logits_RBTV: Tensor, targets_RBT: Tensor, options: CrossEntropyOptions) -> Tensor:
    """Return [R, B, T], -sum_v q_v log p_v + z log^2 sum_v exp(z_v), q the smoothed target."""
    losses = F.cross_entropy(
        logits_RBTV.flatten(0, -2),
        targets_RBT.flatten(),
        reduction="none",
        label_smoothing=options.label_smoothing,
    ).view(targets_RBT.shape)
    if options.z_loss:
        losses = losses + options.z_loss * logits_RBTV.logsumexp(dim=-1).square()
    return losses


PLAIN = TrainingLoss(cross_entropy, CrossEntropyOptions())
