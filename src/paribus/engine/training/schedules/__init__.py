"""Learning rate schedules, one per file, declared with `@schedule`.

A schedule maps a step after the warmup to a fraction of the peak learning rate. A new file in this
folder is discovered automatically; a study sets a custom schedule with `training.schedule.kind =
"ideas.py:my_schedule"`. All schedules start with the same linear warmup.

Axes: R replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Decorated, Options, find_declared, read_options

__all__ = ["LearningRates", "Moment", "Options", "Schedule", "schedule"]

PACKAGE = "paribus.engine.training.schedules"
KEY = "training.schedule"


class Moment(NamedTuple):
    """Position of a step in a training run.

    Attributes:
        step: 0-based step index. With a growing batch size, it is fractional: the number of tokens
            trained on so far, including this step, in units of a full-size step, minus 1. It may be
            negative at first.
        steps: Number of steps in the run.
        warmup: Number of warmup steps.
    """

    step: float
    steps: int
    warmup: int

    @property
    def progress(self) -> float:
        """Completed fraction of the steps after the warmup, which is 1 at the last step."""
        return (self.step + 1 - self.warmup) / (self.steps - self.warmup)


class Schedule(Decorated):
    """Decorator that declares a function as a learning rate schedule, `@schedule("name")`.

    The function maps (moment, options) to a nonnegative fraction of the peak learning rate. If its
    options have a field `final_fraction`, this is set to `training.schedule.final_fraction`.
    """


schedule = Schedule


class LearningRates:
    """Learning rates of all replicas, as a pure function of settings and step.

    Args:
        settings: One setting per replica, which may differ in peak learning rate.
        folder: Folder against which the import path of a custom schedule is resolved.

    Raises ParibusError for an unknown schedule or option.
    """

    def __init__(self, settings: Sequence[Setting], folder: Path | None) -> None:
        self._setting, spec = settings[0], settings[0].training.schedule
        self._peaks_R = np.array([each.training.optimizer.learning_rate for each in settings])
        self._declared = find_declared(
            spec.kind, Schedule, f"{KEY}.kind", PACKAGE, folder or Path.cwd()
        )
        options = dict(spec.options)
        if "final_fraction" in self._declared.options.model_fields:
            options["final_fraction"] = spec.final_fraction
        self._options = read_options(
            self._declared.options, options, f"{KEY}.options", self._declared.name
        )

    def at(self, t: int) -> np.ndarray:
        """Return the learning rates for step t, float32 [R].

        The linear warmup reaches the peak in its last step. Raises ParibusError if the schedule
        fails, or returns anything other than a finite, nonnegative number.
        """
        steps, warmup = self._setting.budget_iterations, self._setting.training.schedule.warmup
        place = min(self._setting.place(t), steps - 1)  # timing makes steps beyond the run
        if place + 1 <= warmup:
            return (self._peaks_R * (place + 1) / warmup).astype(np.float32)
        label = f"{KEY}: schedule '{self._declared.name}'"
        with blamed(
            f"{label} failed at step {place}", "check that it accepts a Moment and options"
        ):
            moment = Moment(place, steps, warmup)
            fraction: float = self._declared.function(moment, self._options)
        if not isinstance(fraction, Real) or not 0 <= fraction < math.inf:
            raise ParibusError(
                f"{label} returned {fraction!r} at step {place}; return the learning rate as a "
                "finite, nonnegative fraction of the peak",
                code="own_code",
            )
        return (self._peaks_R * float(fraction)).astype(np.float32)
