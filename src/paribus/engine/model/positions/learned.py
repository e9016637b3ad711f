"""Learned absolute positions, and none at all."""

from __future__ import annotations

from torch import nn

from paribus.engine.model.layers import Table
from paribus.engine.model.parts import ModelConfig, part


@part(
    "learned",
    title="learned absolute positions",
    describe="a learned vector for each position, added to the token embeddings",
    source="Radford et al. 2019",
)
class LearnedPositions(Table):
    """positions_T -> rows of the table, [T, D]."""

    stands = "embedding"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model.seq_len, model.d_model)


@part(
    "none",
    title="no position encoding",
    describe="nothing but the causal mask, which tells the order indirectly",
    source="Haviv et al. 2022; Kazemnejad et al. 2023",
)
class NoPositions(nn.Module):
    """No positions; never called."""

    stands = "nowhere"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
