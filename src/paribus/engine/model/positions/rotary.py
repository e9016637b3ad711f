"""Rotary position encoding.

Axes: B batch, H query heads, G key-value heads, T time, K channels per head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paribus.engine.model.parts import ModelConfig, part


@part("rotary")
class RotaryPositions(nn.Module):
    """Rotary position encoding (Su et al. 2021).

    Channels i and i + K/2 of a query or key at position p are rotated by the angle p theta^(-2i/K).
    The channel pairs match Llama in Hugging Face Transformers. Attention scores depend on relative
    positions only.
    """

    stands = "attention"
    frequencies: Tensor

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        # Computed on the CPU, for the same bits on every device.
        pairs = torch.arange(0, model.head_width, 2, dtype=torch.float32, device="cpu")
        frequencies = model.positions.theta ** -(pairs / model.head_width)
        device = torch.get_default_device()
        self.register_buffer("frequencies", frequencies.to(device), persistent=False)

    def forward(self, q: Tensor, k: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q [B, H, T, K] and k [B, G, T, K] by the angles of `positions_T`."""
        angles_TK = (positions_T[:, None].float() * self.frequencies).repeat(1, 2)
        cos_TK, sin_TK = angles_TK.cos(), angles_TK.sin()
        return _rotate(q, cos_TK, sin_TK), _rotate(k, cos_TK, sin_TK)


def _rotate(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Rotate x in float32, and cast the result to the dtype of x."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos_TK + torch.cat([-second, first], dim=-1) * sin_TK).to(x.dtype)
