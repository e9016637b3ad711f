"""Inverse square root of the step (Vaswani et al. 2017), independent of the run's length."""

from __future__ import annotations

import math

from paribus.engine.training.schedules import Moment, Options, schedule


@schedule("inverse_sqrt", source="Vaswani et al. 2017")
def inverse_sqrt(at: Moment, options: Options) -> float:
    """Return sqrt(warmup / (step + 1)), with a warmup of at least 1."""
    first = max(at.warmup, 1)
    return math.sqrt(first / max(at.step + 1, first))  # a growing batch starts below step 0
