"""LayerNorm."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.kernels.normalization import is_for, norm
from paribus.engine.model.config import ModelConfig
from paribus.engine.model.parts import part

EPS = 1e-5


@part(
    "layernorm",
    title="LayerNorm",
    describe="centring, then a division by the standard deviation, with a learned gain",
    source="Ba et al. 2016",
)
class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(var + eps) * gain + bias.

    `lowers`: whether what reads it multiplies, so that it may come in what autocast multiplies in.
    """

    lowers = False
    centred = True

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__(width, eps=eps or EPS, bias=bias)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """[..., D] -> the same shape."""
        if is_for(input, self.weight, self.bias):
            return norm(input, self.weight, self.bias, self.eps, centred=True, lowers=self.lowers)
        return super().forward(input)
