"""The held-out loss alone, for a curve along training: a forward pass and a cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paribus.engine.data import Tokens
from paribus.engine.evaluation.predictions import text_batches, windows_per_batch
from paribus.engine.model.side_by_side import read_together


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
    (found,) = _losses(lambda ids_WT: model(ids_WT)[None], 1, tokens, seq_len, vocab_size, device)
    return found


@torch.no_grad()
def heldout_losses_together(
    models: Sequence[nn.Module],
    weights: Mapping[str, Tensor],
    tokens: Tokens,
    seq_len: int,
    vocab_size: int,
) -> list[LossSum]:
    """The same of replicas side by side, as `read_together` takes them: a short text fills an
    accelerator with all of them, and copies no weights.

    As many read at once as one model reads windows; of each window's loss 1e-6 is rounding.
    """
    device = next(iter(weights.values())).device
    most, found = windows_per_batch(seq_len, vocab_size, device), list[LossSum]()
    for start in range(0, len(models), most):
        some, rows = models[start : start + most], slice(start, start + most)
        named = {name: values[rows] for name, values in weights.items()}

        def read(
            ids_WT: Tensor,
            some: Sequence[nn.Module] = some,
            named: Mapping[str, Tensor] = named,
        ) -> Tensor:
            return read_together(some, named, ids_WT)

        found += _losses(read, len(some), tokens, seq_len, vocab_size, device)
    return found


def _losses(
    read: Callable[[Tensor], Tensor],
    R: int,
    tokens: Tokens,
    seq_len: int,
    vocab_size: int,
    device: torch.device,
) -> list[LossSum]:
    """Of R replicas, of which `read` gives logits [R, W, T, V]."""
    windows = windows_per_batch(R * seq_len, vocab_size, device)
    nats_R, n = np.zeros(R), 0
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for inputs_WT, targets_WT in text_batches(tokens, seq_len, windows):
            logits_RWTV = read(torch.from_numpy(inputs_WT).to(device)).float()
            targets_N = torch.from_numpy(targets_WT).to(device).flatten().repeat(R)
            losses_N = F.cross_entropy(logits_RWTV.flatten(0, 2), targets_N, reduction="none")
            nats_R += losses_N.cpu().numpy().reshape(R, -1).sum(axis=1, dtype=np.float64)
            n += targets_WT.size
    return [LossSum(float(nats), n) for nats in nats_R]
