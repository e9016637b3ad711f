"""Exponential moving average of the weights (Polyak & Juditsky 1992; Tarvainen & Valpola 2017).

As in torch.optim.swa_utils, it starts with the weights after the first step.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paribus.engine.training.averages import Options, Taken, average


class EMAOptions(Options):
    """Options of the exponential moving average.

    Attributes:
        decay: Weight of the previous average at every step.
    """

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.999


@average("ema", options=EMAOptions)
def ema(at: Taken) -> None:
    """Set the average a = decay * a + (1 - decay) * w, where w are the weights."""
    if at.done == 1:
        at.kept.copy_(at.weights)
    else:
        at.kept.lerp_(at.weights, 1 - at.options.decay)
