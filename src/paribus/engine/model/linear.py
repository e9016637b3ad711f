"""A linear layer of our own parts."""

from __future__ import annotations

from torch import Tensor, nn

from paribus.engine.kernels.linear_maps import linear


class Linear(nn.Linear):
    """x W^T + b, of whose operands autocast's copies are made once a step."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """[..., inputs] -> [..., outputs]."""
        return linear(input, self.weight, self.bias)
