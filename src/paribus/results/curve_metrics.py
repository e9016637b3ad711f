"""What is read from held-out curves as one number per trial: budgets to a target, and speed-ups.

The budget to a registered target (`evaluation.target`) is restricted to what was spent: a trial
that never comes so low counts with its whole budget. So no trial is left out, and what is compared
is min(budget to the target, budget), as in restricted mean survival times (Royston & Parmar 2013,
BMC Med Res Methodol 13:152), with one budget for both of a pair: the smaller one of theirs.

The speed-up at equal loss takes no target: each pair is compared at the loss that both of its
trials reach, the higher one of their two final losses. Nothing is censored, and exchanging the arms
turns s into 1 / s. With the reference's final loss as the target, every trial that ends above it
would be censored and every other one ahead: a difference where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from paribus.metric import Metric
from paribus.results.curves import AXES, Axis, LossCurve
from paribus.study import Study

Curves = Mapping[tuple[str, int], LossCurve]

UNITS: dict[Axis, str] = {"tokens": "tokens", "flops": "FLOPs", "seconds": "s"}
TARGETS = tuple(
    Metric(
        *(f"{axis}_to_target", f"{UNITS[axis]} to target", UNITS[axis], "lower", "curve"),
        digits=1 if axis == "seconds" else 0,
        column=f"target/{axis}",
        scale="log",
        of_tokens=True,
    )
    for axis in AXES
)
SPEEDUPS = tuple(
    Metric(
        *(f"{axis}_speedup", f"speed-up at equal loss ({UNITS[axis]})", "", "higher", "curve"),
        digits=3,
        column=f"speedup/{axis}",
        scale="log",
        of_tokens=True,
        of_pair=True,
    )
    for axis in AXES
)
METRICS = (*TARGETS, *SPEEDUPS)
ROUNDING = 1e-9  # of a budget: ends that are so near are one
# What follows from speeds that are measured in turn, when all trials are trained.
OF_TURNS = frozenset(metric.key for metric in METRICS if metric.key.endswith("/seconds"))


def speedup(ours: LossCurve, theirs: LossCurve, axis: Axis) -> float:
    """Return how many times the budget `theirs` took to the loss that both reach, the higher one of
    their final losses; NaN where a final loss is not finite or not below the first."""
    if not math.isfinite(ours.final + theirs.final):
        return math.nan
    loss = max(ours.final, theirs.final)
    budget, reference = ours.spent_at(loss, axis), theirs.spent_at(loss, axis)
    return reference / budget if budget > 0 and reference > 0 else math.nan


def to_target(curve: LossCurve, target: float, axis: Axis) -> tuple[float, bool]:
    """Return the budget to `target`, or all that was spent, and whether the target was reached."""
    spent, needed = curve.along(axis), curve.spent_at(target, axis)
    if spent is None:
        return math.nan, False
    return (needed, True) if math.isfinite(needed) else (float(spent[-1]), False)


class Needed(NamedTuple):
    """Budgets of two trials to the target; infinite where one did not reach it within `budget`.

    `budget` is the smaller one of theirs: what a trial needed beyond it cannot be compared with one
    that was not trained so long.
    """

    ours: float
    theirs: float
    budget: float

    @property
    def restricted(self) -> tuple[float, float]:
        """min(needed, budget) of both."""
        return min(self.ours, self.budget), min(self.theirs, self.budget)


def needed(ours: LossCurve, theirs: LossCurve, target: float, axis: Axis) -> Needed | None:
    """Return what both needed to `target`; None where the budget is not known."""
    spent = ours.along(axis), theirs.along(axis)
    if spent[0] is None or spent[1] is None:
        return None
    budget = float(min(spent[0][-1], spent[1][-1]))
    # Ends of one budget are equal but for rounding.
    budgets = [curve.spent_at(target, axis) for curve in (ours, theirs)]
    treatment, reference = (at if at <= budget * (1 + ROUNDING) else math.inf for at in budgets)
    return Needed(treatment, reference, budget)


def target_axis(metric: str) -> Axis | None:
    """Return the budget to the target that `metric` is; None of any other."""
    axes = zip(AXES, TARGETS, strict=True)
    return next((axis for axis, target in axes if target.name == metric), None)


def curve_values(
    study: Study, curves: Curves, arm: str, seed: int, *, in_turn: bool
) -> dict[str, float]:
    """Return the values of one trial by `Metric.key`; those in seconds only of arms timed in
    turn."""
    curve, target = curves.get((arm, seed)), study.facts.target
    if curve is None:
        return {}
    reference = curves.get((study.reference(arm) or arm, seed))
    values = {}
    for axis in AXES if in_turn else AXES[:2]:
        if target is not None:
            values[f"target/{axis}"] = to_target(curve, target, axis)[0]
        if reference is not None:
            ratio = 1.0 if reference is curve else speedup(curve, reference, axis)
            values[f"speedup/{axis}"] = ratio
    return {key: value for key, value in values.items() if math.isfinite(value)}
