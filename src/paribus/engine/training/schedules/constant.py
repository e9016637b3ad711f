"""Constant schedule: the peak learning rate at every step after the warmup."""

from __future__ import annotations

from paribus.engine.training.schedules import Moment, Options, schedule


@schedule("constant")
def constant(at: Moment, options: Options) -> float:
    """Return 1.0, the peak learning rate, for every step."""
    return 1.0
