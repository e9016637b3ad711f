"""A straight line from the peak to `final_fraction`."""

from __future__ import annotations

from paribus.engine.training.schedules import Moment, Options, schedule


class Falling(Options):
    """Value at the end of the run, as a fraction of the peak."""

    final_fraction: float = 0.1


@schedule("linear", options=Falling)
def linear(at: Moment, options: Falling) -> float:
    """Return 1 - (1 - f) p, p the progress and f the final fraction."""
    return 1 - (1 - options.final_fraction) * at.progress
