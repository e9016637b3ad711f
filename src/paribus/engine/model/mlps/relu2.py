"""An MLP with squared ReLU."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from paribus.engine.kernels.activations import activation, is_for
from paribus.engine.model.mlps import Ungated
from paribus.engine.model.parts import part


@part(
    "relu2",
    title="squared ReLU",
    describe="the square of the rectified linear unit",
    source="So et al. 2021",
)
class SquaredReLU(Ungated):
    """relu(x W_up)^2 W_down."""

    kind = "relu2"

    def activation(self, x: Tensor) -> Tensor:
        """The unit, channel by channel."""
        return activation("relu2", x) if is_for(x) else F.relu(x).square()
