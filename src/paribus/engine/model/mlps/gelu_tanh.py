"""An MLP with GELU (tanh approximation)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from paribus.engine.kernels.activations import activation, is_for
from paribus.engine.model.mlps import Ungated
from paribus.engine.model.parts import part


@part(
    "gelu_tanh",
    title="GELU (tanh approximation)",
    describe="GELU by its tanh approximation, GPT-2's own",
    source="Hendrycks & Gimpel 2016",
)
class TanhGELU(Ungated):
    """GELU(x W_up) W_down, its tanh approximated."""

    kind = "gelu_tanh"

    def activation(self, x: Tensor) -> Tensor:
        """The unit, channel by channel."""
        return activation("gelu_tanh", x) if is_for(x) else F.gelu(x, approximate="tanh")
