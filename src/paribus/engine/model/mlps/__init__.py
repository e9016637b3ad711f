"""The inner layers of blocks, one file each: x [..., D] -> [..., D], built as `MLP(model)`."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.linear import Linear


class Ungated(nn.Module):
    """activation(x W_up) W_down, of `mlp.ratio` times the width: one file names one activation."""

    residual_projections = ("down",)
    kind: str | None = None  # among our kernels' (`kernels.activations.KINDS`)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.mlp.ratio * model.d_model
        self.up = Linear(model.d_model, width, bias=model.bias)
        self.down = Linear(width, model.d_model, bias=model.bias)

    def activation(self, x: Tensor) -> Tensor:
        """What is applied to every inner channel, of whatever shape."""
        raise NotImplementedError

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD -> [B, T, D]."""
        return self.down(self.activation(self.up(x_BTD)))
