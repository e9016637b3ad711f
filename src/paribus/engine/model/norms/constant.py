"""Norm replacements: identity and constant scaling."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from paribus.engine.model.parts import ModelConfig, part
from paribus.errors import ParibusError


@part("none")
class NoNorm(nn.Identity):
    """Identity that replaces a norm."""

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()


@part("fixed_scale")
class FixedScale(nn.Module):
    """Scaling by a constant that gives initial embeddings an L2 norm of about sqrt(D)."""

    scale: Tensor

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()
        if model.embedding.norm != "fixed_scale" or model.layer is not None:
            raise ParibusError(
                "the norm 'fixed_scale' supports only embeddings, because it divides by their "
                "initial std; use it as model.embedding.norm, and another norm elsewhere",
                code="conflict",
            )
        summed = model.embedding.norm_at == "sum" and model.positions.kind == "learned"
        variance = model.init.token_std**2 + (model.init.position_std**2 if summed else 0.0)
        if variance == 0:
            raise ParibusError(
                "model.embedding.norm = 'fixed_scale' needs nonzero initial embeddings; set "
                "model.init.token_std above 0",
                code="conflict",
            )
        # A buffer, because replicas in a stack may differ in their initialization.
        self.register_buffer("scale", torch.tensor(1 / math.sqrt(variance)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x [..., D] by the constant."""
        return x * self.scale
