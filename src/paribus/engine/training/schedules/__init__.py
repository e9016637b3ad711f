"""Schedules: one file each, declared with `@schedule`.

A schedule maps a step after the warmup to a fraction of the peak. A new file in this folder is
found by its name; a study names a custom schedule as `training.schedule.kind =
"ideas.py:my_schedule"`. The linear warmup is the same for all of them.

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
    """A step of a run.

    Attributes:
        step: From 0. With a growing batch, the tokens trained on including this step, in steps of
            the last size, minus one: a fraction, below 0 at first.
        steps: Steps of the run.
        warmup: Steps of the warmup.
    """

    step: float
    steps: int
    warmup: int

    @property
    def progress(self) -> float:
        """Share of the steps after the warmup that are done, including this one; 1 at the last
        step."""
        return (self.step + 1 - self.warmup) / (self.steps - self.warmup)


class Schedule(Decorated):
    """Declares a function as a schedule: `@schedule("name")`.

    (moment, options) -> fraction of the peak, at least 0. A field `final_fraction` of its options
    is set by the key of that name.
    """


schedule = Schedule


class LearningRates:
    """The learning rates of a stack: a pure function of settings and step.

    Args:
        settings: One per replica; they may differ in their peaks.
        folder: Folder in which the import path of a custom schedule starts.

    Raises ParibusError for an unknown schedule, and for options that it does not have.
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
        """Return the learning rates of step t, float32 [R].

        The last step of the linear warmup is at the peak. Raises ParibusError if the schedule fails
        or returns anything but a finite fraction of at least 0.
        """
        steps, warmup = self._setting.budget_iterations, self._setting.training.schedule.warmup
        place = min(self._setting.place(t), steps - 1)  # steps beyond the run are timed
        if place + 1 <= warmup:
            return (self._peaks_R * (place + 1) / warmup).astype(np.float32)
        label = f"{KEY}: schedule '{self._declared.name}'"
        with blamed(
            f"{label} failed at step {place}", "it is called with a Moment and its options"
        ):
            moment = Moment(place, steps, warmup)
            fraction: float = self._declared.function(moment, self._options)
        if not isinstance(fraction, Real) or not 0 <= fraction < math.inf:
            raise ParibusError(
                f"{label} returned {fraction!r} at step {place}; it must return a finite fraction "
                "of the peak, at least 0",
                code="own_code",
            )
        return (self._peaks_R * float(fraction)).astype(np.float32)
