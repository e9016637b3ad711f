"""An MLP with GELU."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from paribus.model.config import ModelConfig
from paribus.model.parts import part


@part(
    "gelu",
    title="GELU",
    describe="the exact Gaussian error linear unit",
    source="Hendrycks & Gimpel 2016",
)
class GELU(nn.Module):
    """GELU(x W_up) W_down: x_BTD -> [B, T, D]."""

    residual_projections = ("down",)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.mlp.ratio * model.d_model
        self.up = nn.Linear(model.d_model, width, bias=model.bias)
        self.down = nn.Linear(width, model.d_model, bias=model.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD)))
