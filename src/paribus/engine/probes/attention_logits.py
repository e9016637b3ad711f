"""The largest attention logit of every block: its growth goes before some divergences."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paribus.engine.model import visible
from paribus.engine.probes import EVERY_BLOCK, StepView, probe
from paribus.engine.probes.reduce import blocks

QUERY_KEY = f"{EVERY_BLOCK}.attention.query_key"


@probe(
    "attention_logits",
    unit="nats",
    source="Wortsman et al. 2023",
    parts=blocks,
    every=25,
    modules=(QUERY_KEY,),
    label="largest attention logit",
)
def attention_logits(step: StepView) -> Tensor:
    """[R, blocks] the largest q.k / sqrt(K) over batch, heads and pairs of positions that see each
    other: as queries and keys meet, turned and normed, and before a cap."""
    model = step.setting.model
    paths = [QUERY_KEY.replace(EVERY_BLOCK, f"blocks.{i}") for i in range(model.n_layer)]
    sizes = model.n_head, model.attention.window
    return torch.stack([_largest(step.outputs[path], *sizes) for path in paths], dim=1)


def _largest(query_key: Tensor, n_head: int, window: int | None) -> Tensor:
    """[R, B, H + G, T, K] -> [R]; one sequence at a time, as the scores of all would not fit."""
    q, k = query_key.transpose(0, 1).split((n_head, query_key.shape[2] - n_head), dim=2)
    T, K = query_key.shape[-2:]
    hidden_TT = ~visible(0, T, T, window, query_key.device)
    largest = query_key.new_full((len(query_key),), -math.inf, dtype=torch.float32)
    for q_RHTK, k_RGTK in zip(q, k, strict=True):
        k_RHTK = k_RGTK.repeat_interleave(n_head // k_RGTK.shape[1], dim=1)
        scores = (q_RHTK @ k_RHTK.transpose(-1, -2)).masked_fill_(hidden_TT, -math.inf)
        largest = torch.maximum(largest, scores.amax(dim=(1, 2, 3)).float())
    return largest / math.sqrt(K)
