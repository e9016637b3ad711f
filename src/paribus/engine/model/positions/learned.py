"""Learned absolute positions."""

from __future__ import annotations

from torch import nn

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.parts import part


@part(
    "learned",
    title="learned absolute positions",
    describe="a learned vector for each position, added to the token embeddings",
    source="Radford et al. 2019",
)
class LearnedPositions(nn.Embedding):
    """positions_T -> a row of the table each, [T, D]."""

    stands = "embedding"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model.seq_len, model.d_model)
