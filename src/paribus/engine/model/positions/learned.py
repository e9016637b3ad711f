"""Learned absolute position embedding, and a placeholder for no position encoding."""

from __future__ import annotations

from torch import nn

from paribus.engine.model.layers import Table
from paribus.engine.model.parts import ModelConfig, part


@part("learned")
class LearnedPositions(Table):
    """Learned absolute position embedding, positions_T to [T, D] (Radford et al. 2019)."""

    stands = "embedding"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model.seq_len, model.d_model)


@part("none")
class NoPositions(nn.Module):
    """Placeholder for no position encoding (Haviv et al. 2022; Kazemnejad et al. 2023)."""

    stands = "nowhere"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
