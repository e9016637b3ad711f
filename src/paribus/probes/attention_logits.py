"""The largest attention logit of every block: its growth goes before some divergences."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paribus.probes import EVERY_BLOCK, StepView, probe
from paribus.probes.reduce import blocks

QKV = f"{EVERY_BLOCK}.attention.qkv"


@probe(
    "attention_logits",
    unit="nats",
    source="Wortsman et al. 2023",
    parts=blocks,
    every=25,
    modules=(QKV,),
)
def attention_logits(step: StepView) -> Tensor:
    """[R, blocks] the largest q.k / sqrt(K) over batch, heads and pairs of positions k <= q."""
    n_head = step.setting.model.n_head
    layers = range(step.setting.model.n_layer)
    paths = [QKV.replace(EVERY_BLOCK, f"blocks.{i}") for i in layers]
    return torch.stack([_largest(step.outputs[path], n_head) for path in paths], dim=1)


def _largest(qkv: Tensor, n_head: int) -> Tensor:
    """[R, B, T, 3 D] -> [R]; one sequence at a time, as the scores of all would not fit."""
    R, B, T, D3 = qkv.shape
    channels = D3 // 3 // n_head
    q, k, _ = qkv.view(R, B, T, 3, n_head, channels).permute(3, 1, 0, 4, 2, 5).unbind(0)
    future_TT = torch.ones(T, T, dtype=torch.bool, device=qkv.device).triu(1)
    largest = qkv.new_full((R,), -math.inf, dtype=torch.float32)
    for q_RHTK, k_RHTK in zip(q, k, strict=True):
        scores = (q_RHTK @ k_RHTK.transpose(-1, -2)).masked_fill_(future_TT, -math.inf)
        largest = torch.maximum(largest, scores.amax(dim=(1, 2, 3)).float())
    return largest / math.sqrt(channels)
