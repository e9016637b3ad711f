"""LayerNorm's centring alone."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.parts import part


@part("center", title="centring", describe="centring and nothing else")
class Center(nn.Module):
    """x - mean(x)."""

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> the same shape, of mean 0 over D."""
        return x - x.mean(dim=-1, keepdim=True)
