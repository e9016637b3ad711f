"""From the last hidden state to logits.

Axes: D d_model, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paribus.engine.kernels.linear_maps import linear
from paribus.engine.model.config import ModelConfig


class Head(nn.Module):
    """x [..., D] -> logits [..., V], by the token matrix (Press & Wolf 2017) or one of its own."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.softcap = model.head.softcap
        shape = (model.vocab_size, model.d_model)
        self.weight: nn.Parameter | None = None
        if not model.head.tied:
            self.weight = nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor, tokens_VD: Tensor) -> Tensor:
        """x [..., D] and the token matrix -> logits [..., V]; one of its own goes before the
        latter."""
        logits = linear(x, tokens_VD if self.weight is None else self.weight)
        return logits if self.softcap is None else capped(logits, self.softcap)


def capped(x: Tensor, cap: float) -> Tensor:
    """cap tanh(x / cap) (Gemma Team 2024): close to x where it is small, never beyond the cap."""
    return cap * torch.tanh(x / cap)
