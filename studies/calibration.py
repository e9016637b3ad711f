"""A probe: calibration along training, on each batch before the model is trained on it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.extend import StepView, probe

LOGITS = ""  # the path of the model itself, whose outputs are the logits
BINS = 15


@probe(
    "calibration",
    unit="share",
    # Guo et al. 2017, arXiv 1706.04599
    statistics=("error", "confidence", "accuracy"),
    every=50,
    modules=(LOGITS,),
)
def calibration(step: StepView) -> Tensor:
    """Return the expected calibration error, mean confidence and accuracy, [R, 3].

    The last position of each window has no known target and is ignored. The error is over bins of
    equal width; with n tokens it is biased upward by about 1 / sqrt(n).
    """
    probabilities = F.softmax(step.outputs[LOGITS][:, :, :-1].float(), dim=-1).flatten(1, 2)
    confidence, predicted = probabilities.max(dim=-1)  # [R, N]
    correct = (predicted == step.tokens[:, :, 1:].flatten(1)).float()
    bins = (confidence * BINS).long().clamp_(max=BINS - 1)
    gaps = torch.zeros(len(bins), BINS).scatter_add_(1, bins, correct - confidence)
    error = gaps.abs().sum(dim=1) / bins.shape[1]
    return torch.stack([error, confidence.mean(dim=1), correct.mean(dim=1)], dim=1)
