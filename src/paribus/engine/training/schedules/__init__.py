"""Schedules: one file each, declared with `@schedule`.

A schedule maps a step after the warmup to a fraction of the peak. A new file in this folder is
found by its name; a study names a custom schedule as `training.schedule.kind =
"ideas.py:my_schedule"`. The linear warmup is the same for all of them.

Axes: R replicas, S scheduled quantities besides the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paribus.engine.setting import Setting, setting
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Decorated, Options, find_declared, read_options

__all__ = [
    "Moment",
    "Options",
    "Schedule",
    "Scheduled",
    "Schedules",
    "group_column",
    "schedule",
    "scheduled_columns",
]

PACKAGE = "paribus.engine.training.schedules"
DECAY, MOMENTUM = "weight_decay_fraction", "momentum_fraction"  # columns of `training.schedules`


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


class Scheduled:
    """A schedule of a study, with its options and warmup, for a run of `steps` steps.

    Raises ParibusError for an unknown schedule, and for options that it does not have.
    """

    def __init__(
        self,
        spec: setting.Schedule,
        steps: int,
        key: str = "training.schedule",
        folder: Path | None = None,
    ) -> None:
        self._spec, self._steps = spec, steps
        declared = find_declared(spec.kind, Schedule, f"{key}.kind", PACKAGE, folder or Path.cwd())
        self._function, self._label = declared.function, f"{key}: schedule '{declared.name}'"
        options = dict(spec.options)
        if "final_fraction" in declared.options.model_fields:
            options["final_fraction"] = spec.final_fraction
        self._options = read_options(declared.options, options, f"{key}.options", declared.name)

    def value(self, peak: float, t: float) -> float:
        """Return the quantity at step t = 0, 1, ..., steps - 1, or at a fraction between steps.

        The last step of the linear warmup is at the peak. Raises ParibusError if the function fails
        or returns anything but a finite fraction of at least 0.
        """
        warmup, first = self._spec.warmup, self._spec.initial_fraction
        if t + 1 <= warmup:
            return peak * first + peak * (1 - first) * (t + 1) / warmup
        if warmup == self._steps:
            return peak
        # Steps beyond the run are timed.
        moment = Moment(min(t, self._steps - 1), self._steps, warmup)
        with blamed(
            f"{self._label} failed at step {moment.step}",
            "it is called with a Moment and its options",
        ):
            fraction: float = self._function(moment, self._options)
        if not isinstance(fraction, Real) or not 0 <= fraction < math.inf:
            raise ParibusError(
                f"{self._label} returned {fraction!r} at step {moment.step}; it must return a "
                "finite fraction of the peak, at least 0",
                code="own_code",
            )
        return peak * float(fraction)


def group_column(number: int) -> str:
    """Return the column for the learning rate of a group with its own schedule."""
    return f"learning_rate_{number}"


def scheduled_columns(training: setting.Training) -> tuple[str, ...]:
    """Return the columns of all scheduled quantities besides the learning rate.

    `learning_rate_<i>` is the learning rate of group i with its own schedule; weight decay and
    momentum are recorded as fractions of the value set.
    """
    groups = enumerate(training.optimizer.groups)
    columns = [group_column(i) for i, group in groups if group.schedule]
    return (*columns, *(f"{name}_fraction" for name in sorted(training.schedules)))


class Schedules:
    """All schedules of a stack: a pure function of settings and step.

    Args:
        settings: One per replica; they may differ in their peaks.
    """

    def __init__(self, settings: Sequence[Setting], folder: Path | None) -> None:
        first, optimizers = settings[0], [setting.training.optimizer for setting in settings]
        self._place = first.place
        schedules = [
            Scheduled(spec, first.budget_iterations, key, folder)
            for key, spec in first.training.all_schedules
        ]
        peaks = [[optimizer.learning_rate for optimizer in optimizers]]
        peaks += [
            [each.learning_rate * each.groups[i].factor(each) for each in optimizers]
            for i, group in enumerate(optimizers[0].groups)
            if group.schedule
        ]
        peaks += [[1.0] * len(settings) for _ in first.training.schedules]  # fractions
        self._all = list(zip(schedules, peaks, strict=True))

    def at(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the learning rates [R] of step t, and the `scheduled_columns` [S, R]."""
        place = self._place(t)
        rows = [[each.value(peak, place) for peak in peaks] for each, peaks in self._all]
        values_SR = np.array(rows, np.float32)
        return values_SR[0], values_SR[1:]
