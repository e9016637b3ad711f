"""Default training loss: cross-entropy, with optional label smoothing and z-loss.

Axes: R replicas, B batch, T time, V vocabulary.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from paribus.engine.setting import setting
from paribus.engine.training.losses import DEFAULT, TrainingLoss, loss


@loss(DEFAULT)
def cross_entropy(logits_RBTV: Tensor, targets_RBT: Tensor, options: setting.Loss) -> Tensor:
    """Return -sum_v q_v log p_v + c (log sum_v exp(z_v))^2 for each target, [R, B, T].

    Here z are the logits, p = softmax(z), q is the smoothed target distribution, and c is
    `options.z_loss`.
    """
    losses = F.cross_entropy(
        logits_RBTV.flatten(0, -2),
        targets_RBT.flatten(),
        reduction="none",
        label_smoothing=options.label_smoothing,
    ).view(targets_RBT.shape)
    if options.z_loss:
        losses = losses + options.z_loss * logits_RBTV.logsumexp(dim=-1).square()
    return losses


PLAIN = TrainingLoss(cross_entropy, setting.Loss())
