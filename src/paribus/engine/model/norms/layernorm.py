"""LayerNorm and mean-centering."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.parts import ModelConfig, part
from paribus.engine.ops import functional as ops

EPS = 1e-5


@part("layernorm")
class LayerNorm(nn.LayerNorm):
    """LayerNorm, (x - mean) / sqrt(var + eps) * gain + bias (Ba et al. 2016)."""

    fuses = True
    centred = True
    cast_output = False

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__(width, eps=eps or EPS, bias=bias)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Normalize `input` [..., D] over D."""
        cast = self.cast_output
        return ops.norm(input, self.weight, self.bias, self.eps, centred=True, cast_output=cast)


@part("center")
class Center(nn.Module):
    """Mean-centering, x - mean(x)."""

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Subtract the mean over D from x [..., D]."""
        return x - x.mean(dim=-1, keepdim=True)
