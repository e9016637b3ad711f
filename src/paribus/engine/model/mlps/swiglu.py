"""SwiGLU, a gated MLP."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.layers import Linear
from paribus.engine.model.parts import ModelConfig, part
from paribus.engine.ops import functional as ops


@part("swiglu")
class SwiGLU(nn.Module):
    """SwiGLU, (SiLU(x W_gate) * x W_up) W_down (Shazeer 2020)."""

    residual_projections = ("down",)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.gated_width
        self.gate = Linear(model.d_model, width, bias=model.bias)
        self.up = Linear(model.d_model, width, bias=model.bias)
        self.down = Linear(width, model.d_model, bias=model.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Map x_BTD to [B, T, D]."""
        return self.down(ops.gated(self.gate(x_BTD), self.up(x_BTD)))
