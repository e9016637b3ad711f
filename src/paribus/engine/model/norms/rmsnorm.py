"""RMSNorm."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.kernels.normalization import is_for, norm
from paribus.engine.model.config import ModelConfig
from paribus.engine.model.parts import part

EPS = 1e-6


@part(
    "rmsnorm",
    title="RMSNorm",
    describe="a division by the root mean square, with a learned gain",
    source="Zhang & Sennrich 2019",
)
class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gain, never with a bias. `lowers`: see `LayerNorm`."""

    lowers = False
    centred = False

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__(width, eps=eps or EPS)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> the same shape."""
        if is_for(x, self.weight, None):
            assert self.eps is not None
            return norm(x, self.weight, None, self.eps, centred=False, lowers=self.lowers)
        return super().forward(x)
