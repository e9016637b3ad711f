"""Exponential moving average of the weights (Polyak & Juditsky 1992; Tarvainen & Valpola 2017), as
torch.optim.swa_utils computes it: it begins with the weights after the first step."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from paribus.engine.training.averages import Options, Taken, average


class EMAOptions(Options):
    """The share of the average that is kept at a step."""

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.999


def kept(at: Taken) -> Tensor:
    """Return what is kept."""
    return at.kept[0]


@average("ema", give=kept, options=EMAOptions, source="Tarvainen & Valpola 2017")
def ema(at: Taken) -> None:
    """Write a = decay a + (1 - decay) w."""
    if at.done == 1:
        at.kept[0].copy_(at.weights)
    else:
        at.kept[0].lerp_(at.weights, 1 - at.options.decay)
