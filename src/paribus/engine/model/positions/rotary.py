"""Rotary positions.

Axes: B batch, H heads, T time, K channels of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paribus.engine.model.parts import ModelConfig, part


@part(
    "rotary",
    title="rotary positions",
    describe="queries and keys turned by angles proportional to their position",
    source="Su et al. 2021",
)
class RotaryPositions(nn.Module):
    """Channels i and i + K/2 of a query or key at position p are turned by p theta^(-2i/K).

    The pairs are those of Llama in Hugging Face's weights. A score then depends on the distance of
    two tokens, not on their places.
    """

    stands = "attention"
    frequencies: Tensor

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        # On the CPU: the same bits on every device, and arithmetic on "meta" imports a compiler.
        pairs = torch.arange(0, model.head_width, 2, dtype=torch.float32, device="cpu")
        frequencies = model.positions.theta ** -(pairs / model.head_width)
        home = torch.get_default_device()
        self.register_buffer("frequencies", frequencies.to(home), persistent=False)

    def forward(self, q: Tensor, k: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """Turn q [B, H, T, K] and k [B, G, T, K] by the positions [T] of their tokens."""
        angles_TK = (positions_T[:, None].float() * self.frequencies).repeat(1, 2)
        cos_TK, sin_TK = angles_TK.cos(), angles_TK.sin()
        return _turned(q, cos_TK, sin_TK), _turned(k, cos_TK, sin_TK)


def _turned(x: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Turn x in float32, whatever it comes in."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos_TK + torch.cat([-second, first], dim=-1) * sin_TK).to(x.dtype)
