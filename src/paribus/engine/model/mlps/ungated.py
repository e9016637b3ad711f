"""Ungated MLPs: two linear maps with an activation between them."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.layers import Linear
from paribus.engine.model.parts import ModelConfig, part
from paribus.engine.ops import functional as ops


class Ungated(nn.Module):
    """Base class of ungated MLPs, activation(x W_up) W_down.

    The inner width is `mlp.ratio` x D. `kind` is a key of `ops.functional.ACTIVATIONS`; override
    `activation` to use another function.
    """

    residual_projections = ("down",)
    kind: str

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.mlp.ratio * model.d_model
        self.up = Linear(model.d_model, width, bias=model.bias)
        self.down = Linear(width, model.d_model, bias=model.bias)

    def activation(self, x: Tensor) -> Tensor:
        """Apply the activation elementwise."""
        return ops.activation(self.kind, x)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Map x_BTD to [B, T, D]."""
        return self.down(self.activation(self.up(x_BTD)))


@part("gelu")
class GELU(Ungated):
    """GELU(x W_up) W_down (Hendrycks & Gimpel 2016)."""

    fuses = True
    kind = "gelu"


@part("gelu_tanh")
class TanhGELU(Ungated):
    """GELU(x W_up) W_down, with the tanh approximation of GELU (Hendrycks & Gimpel 2016)."""

    fuses = True
    kind = "gelu_tanh"


@part("relu2")
class SquaredReLU(Ungated):
    """relu(x W_up)^2 W_down (So et al. 2021)."""

    fuses = True
    kind = "relu2"
