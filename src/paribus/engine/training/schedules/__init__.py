"""Schedules: one file each, declared with `@schedule`.

A schedule maps a step after the warmup to a fraction of the peak. A new file in this folder is
found by its name; a study names a custom schedule as `training.schedule.kind =
"ideas.py:my_schedule"`. The linear warmup is the same for all of them.

Axes: R replicas, S scheduled quantities besides the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paribus.engine.setting import Setting, setting
from paribus.errors import ParibusError, blamed
from paribus.study.choices import (
    Options,
    find_declared,
    read_options,
    require_declaration,
    undecorated,
)

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
MOST_TRIED = 20_000  # steps; this takes a fraction of a second


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
        """Share of the steps after the warmup that are done, with this one: 1 at the last."""
        return (self.step + 1 - self.warmup) / (self.steps - self.warmup)


Fraction = Callable[[Moment, Any], float]


@dataclass(frozen=True)
class Schedule:
    """Declares a function as a schedule: `@schedule("name")`.

    Attributes:
        name: Its name in studies.
        options: Class of its options; a field `final_fraction` is set by the key of that name.
        source: Reference of its definition.
        fraction: The function: (moment, options) -> fraction of the peak, at least 0.
    """

    name: str
    _: KW_ONLY
    options: type[Options] = Options
    source: str = ""
    fraction: Fraction = undecorated

    def __post_init__(self) -> None:
        require_declaration("schedule", self.name, self.options)

    def __call__(self, fraction: Fraction) -> Schedule:
        """Return the schedule that `fraction` computes."""
        return replace(self, fraction=fraction)


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
        self._spec, self._steps, self._key = spec, steps, key
        self._declared = find_declared(
            spec.kind, Schedule, f"{key}.kind", PACKAGE, folder or Path.cwd()
        )
        name, fields = self._declared.name, self._declared.options.model_fields
        options = dict(spec.options)
        if "final_fraction" in fields:
            options["final_fraction"] = spec.final_fraction
        elif (
            name != "constant"
            and spec.final_fraction != setting.Schedule.model_fields["final_fraction"].default
        ):
            raise ParibusError(
                f"schedule '{name}' does not use {key}.final_fraction; remove it, or let the arm "
                f"set {key} as a whole",
                code="conflict",
            )
        self._options = read_options(self._declared.options, options, f"{key}.options", name)

    def value(self, peak: float, t: float) -> float:
        """Return the quantity at step t = 0, 1, ..., steps - 1, or at a fraction between steps.

        The last step of the linear warmup is at the peak. Raises ParibusError if the function fails
        or returns anything but a finite fraction of at least 0.
        """
        warmup, first = self._spec.warmup, self._spec.initial_fraction
        if t + 1 <= warmup:
            return peak * first + peak * (1 - first) * (t + 1) / warmup
        # Inputs are also drawn for the step after the last, to ask what the model computes.
        return peak * self._fraction(Moment(min(t, self._steps - 1), self._steps, warmup))

    def _fraction(self, moment: Moment) -> float:
        if moment.warmup == moment.steps:
            return 1.0
        label = f"{self._key}: schedule '{self._declared.name}'"
        with blamed(
            f"{label} failed at step {moment.step}", "it is called with a Moment and its options"
        ):
            fraction = self._declared.fraction(moment, self._options)
        if not isinstance(fraction, Real) or not 0 <= fraction < math.inf:
            raise ParibusError(
                f"{label} returned {fraction!r} at step {moment.step}; it must return a finite "
                "fraction of the peak, at least 0",
                code="own_code",
            )
        return float(fraction)


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
        schedules = {
            key: Scheduled(spec, first.budget_iterations, key, folder)
            for key, spec in first.training.all_schedules
        }
        self._rate = schedules.pop("training.schedule")
        self._rates = [optimizer.learning_rate for optimizer in optimizers]
        peaks = [
            [optimizer.groups[i].peak(optimizer) for optimizer in optimizers]
            for i, group in enumerate(optimizers[0].groups)
            if group.schedule
        ]
        peaks += [[1.0] * len(settings) for _ in first.training.schedules]  # fractions
        self._others = list(zip(schedules.values(), peaks, strict=True))

    def at(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the learning rates [R] of step t, and the `scheduled_columns` [S, R]."""
        place = self._place(t)
        rates = [self._rate.value(peak, place) for peak in self._rates]
        values = [[each.value(peak, place) for peak in peaks] for each, peaks in self._others]
        shape = len(self._others), len(rates)
        return np.array(rates, np.float32), np.array(values, np.float32).reshape(shape)

    @classmethod
    def require(cls, setting: Setting, folder: Path | None) -> None:
        """Raise ParibusError for a schedule that fails at some step of a run."""
        schedules = cls([setting], folder)
        n = min(setting.iterations, MOST_TRIED)
        for t in np.unique(np.linspace(0, setting.iterations - 1, n).astype(int)).tolist():
            schedules.at(t)
