"""No positions: the causal mask alone tells the order."""

from __future__ import annotations

from torch import nn

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.parts import part


@part(
    "none",
    title="no position encoding",
    describe="nothing but the causal mask, which tells the order indirectly",
    source="Haviv et al. 2022; Kazemnejad et al. 2023",
)
class NoPositions(nn.Module):
    """Stands nowhere, and is never called."""

    stands = "nowhere"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
