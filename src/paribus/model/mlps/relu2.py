"""An MLP with squared ReLU."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from paribus.model.config import ModelConfig
from paribus.model.parts import part


@part(
    "relu2",
    title="squared ReLU",
    describe="the square of the rectified linear unit",
    source="So et al. 2021",
)
class SquaredReLU(nn.Module):
    """relu(x W_up)^2 W_down: x_BTD -> [B, T, D]."""

    residual_projections = ("down",)

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.mlp.ratio * model.d_model
        self.up = nn.Linear(model.d_model, width, bias=model.bias)
        self.down = nn.Linear(width, model.d_model, bias=model.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x_BTD)).square())
