"""Warmup-stable-decay schedule: constant, then a final decay (Hu et al. 2024, MiniCPM).

The shape "sqrt" is "1-sqrt" in Hägele et al. 2024 (Scaling laws and compute-optimal training beyond
fixed training durations).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from paribus.engine.training.schedules import Moment, schedule
from paribus.engine.training.schedules.linear import Falling


class WSDOptions(Falling):
    """Options of the warmup-stable-decay schedule.

    Attributes:
        decay: Fraction of all steps in the decay phase.
        shape: Shape of the decay.
    """

    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    shape: Literal["linear", "sqrt"] = "linear"


@schedule("wsd", options=WSDOptions)
def wsd(at: Moment, options: WSDOptions) -> float:
    """Return 1 before the decay phase, and a decreasing fraction during it.

    The fraction is f + (1 - f) g(q), where f is the final fraction, q is the progress of the decay,
    and g(q) is 1 - q or 1 - sqrt(q). The decay takes round(decay x steps) steps, at least one and
    at most all steps after the warmup.
    """
    steps = min(max(round(options.decay * at.steps), 1), at.steps - at.warmup)
    progress = max((at.step + 1 - (at.steps - steps)) / steps, 0.0)
    left = 1 - (progress if options.shape == "linear" else math.sqrt(progress))
    return options.final_fraction + (1 - options.final_fraction) * left
