"""Held-out loss curves of trials, as a function of tokens, FLOPs or seconds.

Two statistics are computed from each curve. The first is the budget to a registered target loss
(`evaluation.target`): min(budget to the target, total budget), as in restricted mean survival times
(Royston & Parmar 2013, BMC Med Res Methodol 13:152). The total budget is the smaller one of both
trials of a pair. No trial is excluded for missing the target.

The second is the speed-up at equal loss, which needs no target. Each pair is compared at the higher
of its two final losses, which both trials reach, so nothing is censored, and swapping the arms
inverts the ratio. The reference's final loss is not used as a target because this would be biased:
trials that end above it would be censored, and all others would count as faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from paribus.metric import Metric
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study

FILE = "curve.parquet"
IN_TURN = "training/tokens per second"  # what arms took turns for, and seconds follow from

Trial = tuple[str, int]  # (arm, seed)
Turns = Mapping[Trial, Mapping[str, float]]
Axis = Literal["tokens", "flops", "seconds"]
AXES: tuple[Axis, ...] = get_args(Axis)


@dataclass(frozen=True)
class LossCurve:
    """Held-out loss curve of one trial with P points, from step 0 to the last step.

    Attributes:
        step: [P] number of completed training steps.
        tokens: [P] number of training tokens.
        flops: [P] FLOPs of matrix products; None if they were not counted.
        seconds: [P] training time, computed from the separately measured training speed; None if
            the speed was not measured.
        loss: [P] held-out loss in nats per token; NaN if not finite.
        predicted: number of held-out tokens over which the loss is averaged.
    """

    step: np.ndarray
    tokens: np.ndarray
    flops: np.ndarray | None
    seconds: np.ndarray | None
    loss: np.ndarray
    predicted: int

    def along(self, axis: Axis) -> np.ndarray | None:
        """Return the cumulative budget at each point, [P], or None if it is unknown."""
        return getattr(self, axis)

    @property
    def final(self) -> float:
        """Held-out loss after the last step, in nats per token."""
        return float(self.loss[-1])

    def spent_at(self, loss: float, axis: Axis) -> float:
        """Return the budget at which the curve first reaches `loss`, by linear interpolation.

        The result is inf if the curve never reaches `loss`, and NaN if the budget is unknown.
        Non-finite points count as infinitely high.
        """
        spent = self.along(axis)
        if spent is None:
            return math.nan
        at_or_below = np.flatnonzero(self.loss <= loss)  # NaN is not
        if not len(at_or_below):
            return math.inf
        i = int(at_or_below[0])
        before = self.loss[i - 1] if i else math.nan
        if not math.isfinite(before):
            return float(spent[i])
        share = (before - loss) / (before - self.loss[i])
        return float(spent[i - 1] + share * (spent[i] - spent[i - 1]))

    def loss_at(self, spent: np.ndarray, axis: Axis) -> np.ndarray:
        """Return the linearly interpolated loss at each budget in `spent`.

        The result is NaN outside the range of the curve and next to non-finite points.
        """
        at = self.along(axis)
        if at is None:
            return np.full(len(spent), np.nan)
        return np.interp(spent, at, self.loss, left=np.nan, right=np.nan)


def read_curves(
    study: Study,
    finished: Iterable[TrialFolder],
    records: Mapping[Trial, Mapping[str, Any]],
    turns: Turns,
) -> dict[Trial, LossCurve]:
    """Read the held-out loss curves of all trials that recorded one.

    Args:
        study: the study.
        finished: folders of the finished trials.
        records: content of trial.json, keyed by trial.
        turns: training speeds from the interleaved timing of arms (throughput.parquet), from which
            seconds are computed.
    """
    curves = {}
    facts = {arm: study.arm_facts(arm) for arm in study.arms}
    for folder in finished:
        trial = folder.arm, folder.seed
        record, table = records[trial], folder.read_columns(FILE)
        learned = facts[folder.arm].curve_tokens
        if not len(table) or not learned:
            continue
        step, predicted = (table[name].to_numpy() for name in ("step", "predicted"))
        tokens = np.array(learned, np.float64)
        if None in learned:
            tokens = step * (record["tokens"] / max(record["iterations"], 1))
        per_token = record.get("flops", {}).get("per_token")
        speed = turns.get(trial, {}).get(IN_TURN)
        curves[trial] = LossCurve(
            step,
            tokens,
            None if per_token is None else tokens * per_token,
            None if speed is None else tokens / speed,
            table["loss_sum_nats"].to_numpy().astype(np.float64) / predicted,
            int(predicted[0]),
        )
    return curves


UNITS: dict[Axis, str] = {"tokens": "tokens", "flops": "FLOPs", "seconds": "s"}
SHARED: dict[str, Any] = {"scale": "log", "of_tokens": True}
TARGETS = {
    axis: Metric(
        *(f"{axis}_to_target", f"{unit} to target", unit, "lower", "curve"),
        digits=1 if axis == "seconds" else 0,
        column=f"target/{axis}",
        **SHARED,
    )
    for axis, unit in UNITS.items()
}
SPEEDUPS = {
    axis: Metric(
        *(f"{axis}_speedup", f"speed-up at equal loss ({unit})", "", "higher", "curve"),
        digits=3,
        column=f"speedup/{axis}",
        of_pair=True,
        **SHARED,
    )
    for axis, unit in UNITS.items()
}
METRICS = (*TARGETS.values(), *SPEEDUPS.values())
# What follows from speeds that are measured in turn, when all trials are trained.
OF_TURNS = frozenset(metrics["seconds"].key for metrics in (TARGETS, SPEEDUPS))
ROUNDING = 1e-9  # of a budget: ends that are so near are one


def speedup(ours: LossCurve, theirs: LossCurve, axis: Axis) -> float:
    """Return the reference's budget divided by the arm's budget to reach the same loss.

    The loss is the higher of the two final losses. The result is NaN if a final loss is not finite
    or was already reached before the first step.
    """
    if not math.isfinite(ours.final + theirs.final):
        return math.nan
    loss = max(ours.final, theirs.final)
    budget, reference = ours.spent_at(loss, axis), theirs.spent_at(loss, axis)
    return reference / budget if budget > 0 and reference > 0 else math.nan


def spent_to(
    target: float, axis: Axis, curves: Sequence[LossCurve], place: int
) -> tuple[float, bool]:
    """Return the budget that a trial needs to reach `target`, and whether it is censored.

    The budget is censored at the smaller total budget of the pair.

    Args:
        target: the loss to reach, in nats per token.
        axis: kind of budget.
        curves: curves of both trials of the pair.
        place: index of the trial in `curves`.
    """
    known = (curve.along(axis) for curve in curves)
    budget = min(float(spent[-1]) for spent in known if spent is not None)
    spent = curves[place].spent_at(target, axis)
    # Ends of one budget are equal but for rounding.
    return min(spent, budget), spent > budget * (1 + ROUNDING)


def target_axis(metric: str) -> Axis | None:
    """Return the budget axis of a metric such as `tokens_to_target`, or None for other metrics."""
    return next((axis for axis in AXES if TARGETS[axis].name == metric), None)


def curve_values(
    study: Study, curves: Mapping[Trial, LossCurve], arm: str, seed: int
) -> dict[str, float]:
    """Return the finite values of a trial's curve metrics, keyed by `Metric.key`."""
    curve, target = curves.get((arm, seed)), study.facts.target
    if curve is None:
        return {}
    reference = curves.get((study.reference(arm) or arm, seed))
    values = {}
    for axis in AXES:
        spent = curve.along(axis)
        if target is not None and spent is not None:
            values[f"target/{axis}"] = min(curve.spent_at(target, axis), float(spent[-1]))
        if reference is not None:
            ratio = 1.0 if reference is curve else speedup(curve, reference, axis)
            values[f"speedup/{axis}"] = ratio
    return {key: value for key, value in values.items() if math.isfinite(value)}
