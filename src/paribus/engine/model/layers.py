"""Layers shared by model parts: linear map, embedding, soft cap and dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paribus.engine.ops import functional as ops

# Constants of the SplitMix64 finalizer (Steele et al. 2014), as signed 64-bit integers.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


class Linear(nn.Linear):
    """Linear map, x W^T + b."""

    def reset_parameters(self) -> None:
        """Initialize like `nn.Linear`, but skip "meta" tensors to avoid importing the compiler."""
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map `input` [..., in_features] to [..., out_features]."""
        return ops.linear(input, self.weight, self.bias)


class Table(nn.Embedding):
    """Lookup table of vectors, like `nn.Embedding`."""

    def reset_parameters(self) -> None:
        """Initialize like `nn.Embedding`, but skip "meta" tensors (see `Linear`)."""
        if not self.weight.is_meta:
            super().reset_parameters()


def capped(x: Tensor, cap: float) -> Tensor:
    """Return cap * tanh(x / cap), which softly limits x to (-cap, cap) (Gemma Team 2024)."""
    return cap * torch.tanh(x / cap)


class Dropout(nn.Module):
    """Dropout whose mask is a pure function of a key (Srivastava et al. 2014).

    The mask is the same in every arm and on every device. It is a hash of `key` and each element's
    index in the whole batch, so no random generator is needed. Before every step, the trainer sets
    `key` from (seed, step, module path), and `first` to the number of sequences that precede x in
    the batch.
    """

    key: Tensor
    first: int = 0

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Zero a fraction p of x [B, ...] and scale the rest by 1 / (1 - p), only in training."""
        if not self.training or self.p == 0:
            return x
        start = self.first * (x.numel() // len(x))
        position = torch.arange(start, start + x.numel(), device=x.device).view(x.shape)
        uniform = _mix(position * _GOLDEN + self.key) >> 11  # the top 53 bits, as a signed integer
        dropped = (uniform & (2**53 - 1)) < int(self.p * 2**53)
        return x.masked_fill(dropped, 0.0) / (1 - self.p)


def _mix(z: Tensor) -> Tensor:
    """Apply SplitMix64's finalizer, masking arithmetic shifts to make them logical."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _MIX_1
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _MIX_2
    return z ^ ((z >> 31) & (2**33 - 1))
