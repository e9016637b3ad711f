"""Polynomial decay: a power of the remaining share of the run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paribus.engine.training.schedules import Moment, schedule
from paribus.engine.training.schedules.linear import Falling


class PowerOptions(Falling):
    """Exponent of the decay: 1 is linear, larger values fall earlier."""

    exponent: Annotated[float, Field(gt=0)] = 2.0


@schedule("power", options=PowerOptions)
def power(at: Moment, options: PowerOptions) -> float:
    """Return f + (1 - f) (1 - p)^exponent, p the progress and f the final fraction."""
    final = options.final_fraction
    return final + (1 - final) * (1 - at.progress) ** options.exponent
