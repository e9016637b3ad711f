"""Cosine schedule: a half period from the peak to `final_fraction` (Loshchilov & Hutter 2017)."""

from __future__ import annotations

import math

from paribus.engine.training.schedules import Moment, schedule
from paribus.engine.training.schedules.linear import Falling


@schedule("cosine", options=Falling)
def cosine(at: Moment, options: Falling) -> float:
    """Return f + (1 - f) (1 + cos(pi p)) / 2 for progress p and final fraction f."""
    cosine = (1 + math.cos(math.pi * at.progress)) / 2
    return options.final_fraction + (1 - options.final_fraction) * cosine
