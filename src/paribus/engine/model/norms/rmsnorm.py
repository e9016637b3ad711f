"""RMSNorm, with and without a gain (Zhang & Sennrich 2019)."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.parts import ModelConfig, part
from paribus.engine.ops import functional as ops

EPS = 1e-6


@part("rmsnorm")
class RMSNorm(nn.RMSNorm):
    """RMSNorm, x / sqrt(mean(x^2) + eps) * gain, without a bias (Zhang & Sennrich 2019)."""

    fuses = True
    centred = False
    cast_output = False

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__(width, eps=eps or EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D] over D."""
        assert self.eps is not None
        cast = self.cast_output
        return ops.norm(x, self.weight, None, self.eps, centred=False, cast_output=cast)


@part("rms_free")
class ParameterFreeRMSNorm(nn.Module):
    """RMSNorm without a gain, x / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019)."""

    cast_output = False

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()
        self.eps = eps or EPS

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D] over D."""
        cast = self.cast_output
        return ops.norm(x, None, None, self.eps, centred=False, cast_output=cast)
