"""SwiGLU."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.layers import Linear
from paribus.engine.model.parts import ModelConfig, part
from paribus.engine.ops import functional as ops


def inner_width(model: ModelConfig) -> int:
    """Return the width of a gated MLP's inner layer.

    With `mlp.match_parameters`, its number of parameters is closest to that of an ungated MLP of
    the same ratio: 2/3 of the width, apart from biases.
    """
    d, width = model.d_model, model.mlp.ratio * model.d_model
    if not model.mlp.match_parameters:
        return width
    biased = int(model.bias)
    return max(1, round((2 * d + biased) * width / (3 * d + 2 * biased)))


@part(
    "swiglu",
    title="SwiGLU",
    describe="a linear layer gated by the SiLU of another",
    source="Shazeer 2020",
)
class SwiGLU(nn.Module):
    """(SiLU(x W_gate) * x W_up) W_down: x_BTD -> [B, T, D]."""

    residual_projections = ("down",)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = inner_width(model)
        self.gate = Linear(model.d_model, width, bias=model.bias)
        self.up = Linear(model.d_model, width, bias=model.bias)
        self.down = Linear(width, model.d_model, bias=model.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD -> [B, T, D]."""
        return self.down(ops.gated(self.gate(x_BTD), self.up(x_BTD)))
