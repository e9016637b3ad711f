"""Linear schedule from the peak to `final_fraction`."""

from __future__ import annotations

from paribus.engine.training.schedules import Moment, Options, schedule


class Falling(Options):
    """Options of a decreasing schedule.

    Attributes:
        final_fraction: Learning rate at the end of the run, as a fraction of the peak.
    """

    final_fraction: float = 0.1


@schedule("linear", options=Falling)
def linear(at: Moment, options: Falling) -> float:
    """Return 1 - (1 - f) p for progress p and final fraction f."""
    return 1 - (1 - options.final_fraction) * at.progress
