"""Warmup-stable-decay (Hu et al. 2024, MiniCPM): the peak, and a decay over the last steps.

`sqrt` is 1 - sqrt of Haegele et al. 2024 (Scaling laws and compute-optimal training beyond fixed
training durations).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from paribus.engine.training.schedules import Moment, schedule
from paribus.engine.training.schedules.linear import Falling


class WSDOptions(Falling):
    """The share of all steps that decay, and how."""

    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    shape: Literal["linear", "sqrt", "cosine"] = "linear"


@schedule("wsd", options=WSDOptions, source="Hu et al. 2024")
def wsd(at: Moment, options: WSDOptions) -> float:
    """Return 1 up to the decay; in it f + (1 - f) g(q), q the share of it that is made.

    g(q) is 1 - q, 1 - sqrt(q) or (1 + cos(pi q)) / 2. The decay has round(decay x steps) steps, at
    least one and at most those after the warmup.
    """
    steps = min(max(round(options.decay * at.steps), 1), at.steps - at.warmup)
    made = max((at.step + 1 - (at.steps - steps)) / steps, 0.0)
    left = {
        "linear": 1 - made,
        "sqrt": 1 - math.sqrt(made),
        "cosine": (1 + math.cos(math.pi * made)) / 2,
    }[options.shape]
    return options.final_fraction + (1 - options.final_fraction) * left
