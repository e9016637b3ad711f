"""The held-out loss alone, for a curve along training: a forward pass and a cross-entropy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from paribus.data import Tokens
from paribus.evaluation.predictions import text_batches, windows_per_batch


class LossSum(NamedTuple):
    """A sum of -log p over predicted tokens, in nats, and how many these are."""

    nats: float
    tokens: int


@torch.no_grad()
def heldout_loss(model: nn.Module, tokens: Tokens, seq_len: int, vocab_size: int) -> LossSum:
    """The loss of `model` on tokens[1:], [N + 1] ids, with contexts of up to `seq_len`, in float32.

    Windows do not overlap, as in `predict`, which gives the same up to rounding. The model is in
    evaluation mode, and is asked for logits [W, T, V] of ids [W, T]. Losses are added up in float64
    in the order of the text; one host synchronisation for each batch. PyTorch's global generators
    are as they were.
    """
    device = next(model.parameters()).device
    windows = windows_per_batch(seq_len, vocab_size, device)
    nats, n = 0.0, 0
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for inputs_WT, targets_WT in text_batches(tokens, seq_len, windows):
            logits_WTV = model(torch.from_numpy(inputs_WT).to(device)).float()
            targets_N = torch.from_numpy(targets_WT).to(device).flatten()
            losses_N = F.cross_entropy(logits_WTV.flatten(0, 1), targets_N, reduction="none")
            nats += float(losses_N.cpu().numpy().sum(dtype=np.float64))
            n += targets_WT.size
    return LossSum(nats, n)
