"""The inverse square root of the step (Vaswani et al. 2017): it knows no end of the run."""

from __future__ import annotations

import math

from paribus.engine.training.schedules import Moment, Options, schedule


@schedule("inverse_sqrt", source="Vaswani et al. 2017")
def inverse_sqrt(at: Moment, options: Options) -> float:
    """Return sqrt(warmup / (step + 1)); without warmup, of a warmup of one step."""
    first = max(at.warmup, 1)
    return math.sqrt(first / max(at.step + 1, first))  # where batches grow, steps begin below 0
