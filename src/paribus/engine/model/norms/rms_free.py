"""RMSNorm without a gain."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from paribus.engine.kernels.normalization import is_for, norm
from paribus.engine.model.config import ModelConfig
from paribus.engine.model.norms.rmsnorm import EPS
from paribus.engine.model.parts import part


@part(
    "rms_free",
    title="parameter-free RMSNorm",
    describe="a division by the root mean square, without a gain",
    source="Zhang & Sennrich 2019",
)
class ParameterFreeRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps): the scale without a gain to learn. `lowers`: see `LayerNorm`."""

    lowers = False

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()
        self.width, self.eps = width, eps or EPS

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> the same shape, of root mean square 1 over D."""
        if x.shape[-1:] == (self.width,) and is_for(x, None, None):
            return norm(x, None, None, self.eps, centred=False, lowers=self.lowers)
        return F.rms_norm(x, (self.width,), eps=self.eps)
