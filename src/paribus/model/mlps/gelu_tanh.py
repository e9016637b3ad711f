"""An MLP with GELU (tanh approximation)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from paribus.model.config import ModelConfig
from paribus.model.parts import part


@part(
    "gelu_tanh",
    title="GELU (tanh approximation)",
    describe="GELU by its tanh approximation, GPT-2's own",
    source="Hendrycks & Gimpel 2016",
)
class TanhGELU(nn.Module):
    """GELU(x W_up) W_down: x_BTD -> [B, T, D]."""

    residual_projections = ("down",)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.mlp.ratio * model.d_model
        self.up = nn.Linear(model.d_model, width, bias=model.bias)
        self.down = nn.Linear(width, model.d_model, bias=model.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD), approximate="tanh"))
