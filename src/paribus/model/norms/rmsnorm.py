"""RMSNorm."""

from __future__ import annotations

from torch import nn

from paribus.model.config import ModelConfig
from paribus.model.parts import part

EPS = 1e-6


@part(
    "rmsnorm",
    title="RMSNorm",
    describe="a division by the root mean square, with a learned gain",
    source="Zhang & Sennrich 2019",
)
class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gain, never with a bias."""

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__(width, eps=eps or EPS)
