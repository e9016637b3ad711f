"""Schedules, one file each behind one decorator: quantities that change along the run.

A schedule is a function from a step after the warmup to a fraction of the peak. A new file in this
folder is known by its name; a user's own is named in the study (`training.schedule.kind =
"ideas.py:my_schedule"`). Warmup is linear for all of them, and none of their business.

Axes: R replicas, S scheduled quantities besides the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paribus.engine.setting import Setting, setting
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Options, find_declared, read_options, require_declaration

__all__ = [
    "Moment",
    "Options",
    "Schedule",
    "Schedules",
    "find_schedule",
    "group_column",
    "schedule",
    "scheduled_columns",
]

FINAL_FRACTION = setting.Schedule.model_fields["final_fraction"].default
PACKAGE = "paribus.engine.training.schedules"
MOST_TRIED = 20_000  # it takes a fraction of a second


class Moment(NamedTuple):
    """A step of a run.

    Attributes:
        step: from 0; where batches grow what was trained on with it, in steps of the last size,
            less one: a fraction, and at first below 0.
        steps: how many the run has.
        warmup: how many of them come before the schedule itself.
    """

    step: float
    steps: int
    warmup: int

    @property
    def progress(self) -> float:
        """The share of the steps after the warmup that are made with this one: 1 at the last."""
        return (self.step + 1 - self.warmup) / (self.steps - self.warmup)


Fraction = Callable[[Moment, Any], float]


@dataclass(frozen=True)
class Schedule:
    """A schedule.

    Attributes:
        fraction: (moment, options) -> the fraction of the peak, at least 0; a pure function.
        name: how studies call it.
        options: the class of its options; one named `final_fraction` is that of the study.
        source: where it is from.
    """

    fraction: Fraction
    name: str
    options: type[Options]
    source: str


def schedule(
    name: str, *, options: type[Options] = Options, source: str = ""
) -> Callable[[Fraction], Schedule]:
    """Make a function from a moment and options to a fraction of the peak a schedule."""
    require_declaration("schedule", name, options)

    def declare(fraction: Fraction) -> Schedule:
        return Schedule(fraction, name, options, source)

    return declare


class Scheduled:
    """A schedule with its options, warmup included: what a study says of one quantity."""

    def __init__(self, spec: setting.Schedule, where: str, steps: int, folder: Path | None) -> None:
        self._spec, self._steps, self._where = spec, steps, where
        found = find_declared(spec.kind, Schedule, f"{where}.kind", PACKAGE, folder or Path.cwd())
        given = dict(spec.options)
        if "final_fraction" in found.options.model_fields:
            given["final_fraction"] = spec.final_fraction
        elif found.name != "constant" and spec.final_fraction != FINAL_FRACTION:
            raise ParibusError(
                f"{where}.final_fraction is not read by the schedule '{found.name}'; leave it out, "
                f"or let the arm set {where} as a whole"
            )
        self._options = read_options(found.options, given, f"{where}.options", found.name)
        self._found = found

    def value(self, peak: float, t: float) -> float:
        """Return the quantity at step t = 0, 1, ..., steps - 1, or at a place between.

        Linear warmup: the last of its steps is at the peak. Raises ParibusError where the function
        fails, or gives no finite fraction of at least 0.
        """
        warmup, first = self._spec.warmup, self._spec.initial_fraction
        if t + 1 <= warmup:
            return peak * first + peak * (1 - first) * (t + 1) / warmup
        # After the last step inputs are drawn once more, for whoever asks what the model computes.
        return peak * self._fraction(Moment(min(t, self._steps - 1), self._steps, warmup))

    def _fraction(self, moment: Moment) -> float:
        if moment.warmup == moment.steps:
            return 1.0
        name = self._found.name
        what = f"{self._where}: schedule '{name}' failed at step {moment.step}"
        with blamed(what, "it is called with a Moment and its options"):
            fraction = self._found.fraction(moment, self._options)
        if not isinstance(fraction, Real) or not 0 <= fraction < math.inf:
            raise ParibusError(
                f"{self._where}: schedule '{name}' gave {fraction!r} at step {moment.step}; it "
                "gives a fraction of the peak: a finite number that is not negative"
            )
        return float(fraction)


def find_schedule(
    spec: setting.Schedule, steps: int, where: str = "training.schedule", folder: Path | None = None
) -> Scheduled:
    """Return what `spec` means for a run of so many steps. Raises ParibusError."""
    return Scheduled(spec, where, steps, folder)


def group_column(number: int) -> str:
    """Return how the learning rate of a group with a schedule of its own is recorded."""
    return f"learning_rate_{number}"


def scheduled_columns(training: setting.Training) -> tuple[str, ...]:
    """Return the names of all that is scheduled besides the learning rate, in their order.

    `learning_rate_<i>` is the learning rate of group i, which has a schedule of its own; of weight
    decay and momentum it is the fraction of what is set.
    """
    groups = enumerate(training.optimizer.groups)
    named = [f"{name}_fraction" for name in sorted(training.schedules)]
    return (*(group_column(i) for i, group in groups if group.schedule), *named)


def first_and_last(steps: int) -> Iterator[int]:
    """Yield the steps of a run at which what is a function of them is tried beforehand: all, or of
    a long run the first and the last ones."""
    half = MOST_TRIED // 2
    return chain(range(min(steps, half)), range(max(half, steps - half), steps))


class Schedules:
    """All that is scheduled in a stack: a pure function of settings and step.

    Args:
        settings: one per replica, alike but for their peaks.
    """

    def __init__(self, settings: Sequence[Setting], folder: Path | None) -> None:
        training, steps = settings[0].training, settings[0].budget_iterations
        self._place = settings[0].place
        found = {
            key: find_schedule(spec, steps, key, folder) for key, spec in training.all_schedules
        }
        self._rate = found.pop("training.schedule")
        self._peaks = [one.training.optimizer.learning_rate for one in settings]
        self._others = list(zip(found.values(), _peaks(settings), strict=True))

    def at(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the learning rates [R] of step t, and [S, R] of what `scheduled_columns` names."""
        place = self._place(t)
        rates = [self._rate.value(peak, place) for peak in self._peaks]
        others = [[one.value(peak, place) for peak in peaks] for one, peaks in self._others]
        shape = len(self._others), len(rates)
        return np.array(rates, np.float32), np.array(others, np.float32).reshape(shape)

    @classmethod
    def require(cls, one: Setting, folder: Path | None) -> None:
        """Raise ParibusError for a schedule that fails at some step of a run."""
        schedules = cls([one], folder)
        for t in first_and_last(one.iterations):
            schedules.at(t)


def _peaks(settings: Sequence[Setting]) -> list[list[float]]:
    """Return [S][R], the peak of each; 1 of what is recorded as a fraction."""
    training = settings[0].training
    rows = [
        [one.training.optimizer.groups[i].peak(one.training.optimizer) for one in settings]
        for i, group in enumerate(training.optimizer.groups)
        if group.schedule
    ]
    return rows + [[1.0] * len(settings) for _ in training.schedules]
