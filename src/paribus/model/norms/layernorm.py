"""LayerNorm."""

from __future__ import annotations

from torch import nn

from paribus.model.config import ModelConfig
from paribus.model.parts import part

EPS = 1e-5


@part(
    "layernorm",
    title="LayerNorm",
    describe="centring, then a division by the standard deviation, with a learned gain",
    source="Ba et al. 2016",
)
class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(var + eps) * gain + bias."""

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__(width, eps=eps or EPS, bias=bias)
