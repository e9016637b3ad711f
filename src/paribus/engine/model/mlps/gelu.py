"""An MLP with GELU."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from paribus.engine.kernels.activations import activation, is_for
from paribus.engine.model.mlps import Ungated
from paribus.engine.model.parts import part


@part(
    "gelu",
    title="GELU",
    describe="the exact Gaussian error linear unit",
    source="Hendrycks & Gimpel 2016",
)
class GELU(Ungated):
    """GELU(x W_up) W_down."""

    kind = "gelu"

    def activation(self, x: Tensor) -> Tensor:
        """The unit, channel by channel."""
        return activation("gelu", x) if is_for(x) else F.gelu(x)
