"""Exponential moving average of weights (Polyak & Juditsky 1992; Tarvainen & Valpola 2017).

As torch.optim.swa_utils computes it: it starts with the weights after the first step.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paribus.engine.training.averages import Options, Taken, average


class EMAOptions(Options):
    """Share of the average that remains after a step."""

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.999


@average("ema", options=EMAOptions)
def ema(at: Taken) -> None:
    """Write a = decay a + (1 - decay) w."""
    if at.done == 1:
        at.kept.copy_(at.weights)
    else:
        at.kept.lerp_(at.weights, 1 - at.options.decay)
