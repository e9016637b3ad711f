"""Loss, perplexity, accuracy and calibration over the whole validation split.

Every token of the split but its first is predicted exactly once, in non-overlapping windows (the
last one may be shorter). Sums are kept apart from counts and divided last.

Axes: W windows of a batch, T time, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WINDOWS_PER_BATCH = 32
CALIBRATION_BINS = 15  # of equal width, as in Guo et al. 2017


@dataclass(frozen=True)
class Heldout:
    """What was seen on the validation split; sums by window and by bin of confidence.

    Attributes:
        loss_sum_nats, correct, predicted: [windows] summed loss, hits and tokens of each window.
        bin_count, bin_confidence, bin_correct: [CALIBRATION_BINS] tokens whose highest predicted
            probability fell into the bin, the sum of those probabilities, and the hits.
    """

    loss_sum_nats: np.ndarray
    correct: np.ndarray
    predicted: np.ndarray
    bin_count: np.ndarray
    bin_confidence: np.ndarray
    bin_correct: np.ndarray

    @property
    def scores(self) -> dict[str, float | int]:
        """The sums over the whole split, and the ratios of them that are reported.

        `validation_loss` is in nats per token, `validation_perplexity` its exponential (infinite
        beyond the range of a float). `calibration_error` is the expected calibration error of the
        most probable token: the mean of |accuracy - confidence| over bins, weighted by tokens.
        """
        predicted = int(self.predicted.sum())
        loss = float(self.loss_sum_nats.sum()) / predicted
        gaps = np.abs(self.bin_correct - self.bin_confidence)
        return {
            "loss_sum_nats": float(self.loss_sum_nats.sum()),
            "correct": int(self.correct.sum()),
            "predicted": predicted,
            "validation_loss": loss,
            "validation_perplexity": math.exp(loss) if loss < 700 else math.inf,
            "validation_accuracy": int(self.correct.sum()) / predicted,
            "calibration_error": float(gaps.sum()) / predicted,
        }


@torch.no_grad()
def evaluate_heldout(model: nn.Module, tokens: np.ndarray, seq_len: int) -> Heldout:
    """Score `model` on `tokens` [n] with contexts of up to `seq_len`, in float32.

    Sums are accumulated in float64 and in a fixed order.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    windows: list[Tensor] = []
    bins = torch.zeros(3, CALIBRATION_BINS, dtype=torch.float64)
    for inputs, targets in _windows(tokens, seq_len):
        logits_WTV = model(inputs.to(device)).float()
        targets_WT = targets.to(device)
        log_probs_WTV = F.log_softmax(logits_WTV, dim=-1)
        losses_WT = -log_probs_WTV.gather(-1, targets_WT[..., None])[..., 0]
        best_WT, guess_WT = log_probs_WTV.max(dim=-1)
        # Summed on the host: not every device has float64.
        losses_WT, best_WT = losses_WT.cpu().double(), best_WT.cpu().double()
        hits_WT = (guess_WT == targets_WT).cpu().double()
        sizes_W = torch.full_like(losses_WT[:, 0], losses_WT.shape[1])
        windows.append(torch.stack([losses_WT.sum(dim=1), hits_WT.sum(dim=1), sizes_W]))
        confidence = best_WT.exp().flatten()
        # Bins are (0, 1/15], ..., (14/15, 1]; NaN of a broken model goes to the first.
        index = (confidence * CALIBRATION_BINS).ceil().sub(1).nan_to_num(0).long()
        index = index.clamp(0, CALIBRATION_BINS - 1)
        summed = torch.stack([torch.ones_like(confidence), confidence, hits_WT.flatten()])
        bins.index_add_(1, index, summed)
    model.train(was_training)
    loss_sum, correct, predicted = torch.cat(windows, dim=1).numpy()
    count, confidence_sum, bin_correct = bins.numpy()
    return Heldout(
        loss_sum,
        correct.astype(np.int64),
        predicted.astype(np.int64),
        count.astype(np.int64),
        confidence_sum,
        bin_correct.astype(np.int64),
    )


def _windows(tokens: np.ndarray, seq_len: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of (inputs [W, T], targets [W, T]) that predict tokens[1:] once each."""
    ids = torch.from_numpy(tokens.astype(np.int64))
    whole = (len(ids) - 1) // seq_len * seq_len
    inputs = ids[:whole].view(-1, seq_len).split(WINDOWS_PER_BATCH)
    targets = ids[1 : whole + 1].view(-1, seq_len).split(WINDOWS_PER_BATCH)
    batches = list(zip(inputs, targets, strict=True)) if whole else []
    if whole < len(ids) - 1:
        batches.append((ids[whole:-1][None], ids[whole + 1 :][None]))
    return batches
