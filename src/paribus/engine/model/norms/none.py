"""No norm."""

from __future__ import annotations

from torch import nn

from paribus.engine.model.config import ModelConfig
from paribus.engine.model.parts import part


@part("none", title="no norm", describe="x as it is")
class NoNorm(nn.Identity):
    """x."""

    def __init__(self, model: ModelConfig, width: int, eps: float | None, bias: bool) -> None:
        super().__init__()
