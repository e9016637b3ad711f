"""Loss, perplexity and accuracy over the whole validation split.

Every token of the split but its first is predicted exactly once, in non-overlapping windows (the
last one may be shorter). Sums are kept apart from counts and divided last.

Axes: W windows of a batch, T time, V vocabulary.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WINDOWS_PER_BATCH = 32


@torch.no_grad()
def evaluate_heldout(model: nn.Module, tokens: np.ndarray, seq_len: int) -> dict[str, float | int]:
    """Score `model` on `tokens` [n] with contexts of up to `seq_len`, in float32.

    Returns the sums `loss_sum_nats`, `correct` and `predicted` (tokens), and from them
    `validation_loss` (nats per token), `validation_perplexity` (its exponential, over the whole
    split) and `validation_accuracy`. A perplexity beyond the range of a float is infinite.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    # Accumulated in float64 on the host: the order of batches is fixed, so the sum is too.
    loss_sum, correct, predicted = 0.0, 0, 0
    for inputs, targets in _windows(tokens, seq_len):
        logits_WTV = model(inputs.to(device)).float()
        targets_WT = targets.to(device)
        losses = F.cross_entropy(logits_WTV.flatten(0, 1), targets_WT.flatten(), reduction="none")
        loss_sum += losses.double().sum().item()
        correct += int((logits_WTV.argmax(dim=-1) == targets_WT).sum())
        predicted += targets_WT.numel()
    model.train(was_training)
    loss = loss_sum / predicted
    return {
        "loss_sum_nats": loss_sum,
        "correct": correct,
        "predicted": predicted,
        "validation_loss": loss,
        "validation_perplexity": math.exp(loss) if loss < 700 else math.inf,
        "validation_accuracy": correct / predicted,
    }


def _windows(tokens: np.ndarray, seq_len: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of (inputs [W, T], targets [W, T]) that predict tokens[1:] once each."""
    ids = torch.from_numpy(tokens.astype(np.int64))
    whole = (len(ids) - 1) // seq_len * seq_len
    inputs = ids[:whole].view(-1, seq_len).split(WINDOWS_PER_BATCH)
    targets = ids[1 : whole + 1].view(-1, seq_len).split(WINDOWS_PER_BATCH)
    batches = list(zip(inputs, targets, strict=True))
    if whole < len(ids) - 1:
        batches.append((ids[whole:-1][None], ids[whole + 1 :][None]))
    return batches
