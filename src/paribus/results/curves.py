"""Held-out loss of a trial along its training: against tokens, FLOPs and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from paribus.results.trial_folder import TrialFolder
from paribus.study import Study

FILE = "curve.parquet"
IN_TURN = "training/tokens per second"  # what arms took turns for, and seconds follow from

Trial = tuple[str, int]  # (arm, seed)
Turns = Mapping[Trial, Mapping[str, float | None]]
Axis = Literal["tokens", "flops", "seconds"]
AXES: tuple[Axis, ...] = get_args(Axis)


@dataclass(frozen=True)
class LossCurve:
    """One trial's curve of P points, from before its first step to its last.

    Attributes:
        step: [P] steps done.
        tokens: [P] that were learned from.
        flops: [P] floating-point operations of matrix products; None where nobody counted them.
        seconds: [P] of training, by the speed that was measured in turn with the other trials or,
            before that, by the trial's own clock; None where neither was told.
        loss: [P] nats per token of the first `predicted` held-out tokens; NaN if not finite.
        predicted: held-out tokens of each point.
    """

    step: np.ndarray
    tokens: np.ndarray
    flops: np.ndarray | None
    seconds: np.ndarray | None
    loss: np.ndarray
    predicted: int

    def along(self, axis: Axis) -> np.ndarray | None:
        """[P] the budget spent by each point; None where it is not known."""
        return getattr(self, axis)

    @property
    def final(self) -> float:
        """The loss after the last step."""
        return float(self.loss[-1])

    def spent_at(self, loss: float, axis: Axis) -> float:
        """Return the budget spent when the curve is first at `loss` or below.

        Between two points the loss is taken to fall in a straight line over the budget. Infinite
        where no point is so low, NaN where the budget is not known. A point that is not finite is
        above any loss.
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
        """Return the loss at each budget of `spent`, in straight lines between points; NaN
        beyond the last, and where a neighbour is not finite."""
        at = self.along(axis)
        if at is None:
            return np.full(len(spent), np.nan)
        return np.interp(spent, at, self.loss, left=np.nan, right=np.nan)


def read_curves(
    study: Study,
    finished: Iterable[TrialFolder],
    records: Mapping[Trial, Mapping[str, Any]],
    timing: Mapping[Trial, Mapping[str, Any]],
    turns: Turns,
) -> dict[Trial, LossCurve]:
    """Return the curves of all trials that measured one.

    `records` are their trial.json, `timing` their timing.json, and `turns` the speeds of each,
    measured in turn. Seconds follow from these where all trials have one: on one machine, with
    nothing else at work. Before that they are by the clock of each trial, whatever else the machine
    did. Raises ParibusError where steps of a curve are not those of its study, its seconds do not
    ascend from 0, or its points are of different text.
    """
    curves, in_turn = {}, timed_in_turn(records, turns)
    facts = {arm: study.arm_facts(arm) for arm in study.arms}
    for folder in finished:
        trial = folder.arm, folder.seed
        record, steps = records[trial], facts[folder.arm].curve_steps
        table = folder.read_columns(FILE)
        if not len(table) and not steps:
            continue
        step, predicted = (table[name].to_numpy() for name in ("step", "predicted"))
        seconds = np.asarray(timing[trial].get("curve_seconds", ()), np.float64)
        if len(seconds) and (seconds[0] < 0 or (np.diff(seconds) <= 0).any()):
            raise folder.error("curve_seconds of its timing.json do not ascend from 0 onwards")
        if step.tolist() != list(steps) or (predicted != predicted[0]).any():
            raise folder.error(
                f"{FILE} has not the {len(steps)} points on one text that evaluation.every gives"
            )
        learned = facts[folder.arm].curve_tokens
        tokens = step * (record["tokens"] / max(record["iterations"], 1))
        if learned and None not in learned:
            tokens = np.array(learned, np.float64)
        if in_turn:
            seconds = tokens / (turns[trial][IN_TURN] or 1.0)
        per_token = record.get("flops", {}).get("per_token")
        curves[trial] = LossCurve(
            step,
            tokens,
            None if per_token is None else tokens * per_token,
            seconds if len(seconds) == len(step) else None,
            table["loss_sum_nats"].to_numpy().astype(np.float64) / predicted,
            int(predicted[0]),
        )
    return curves


def timed_in_turn(trials: Iterable[Trial], turns: Turns) -> bool:
    """Return whether the training of every trial was timed in turn."""
    return all(turns.get(trial, {}).get(IN_TURN) for trial in trials)


def curve_table(curves: Mapping[Trial, LossCurve]) -> pa.Table:
    """Tidy, a row for each point: arm, seed, step, tokens, flops, seconds, loss.

    `loss` is in nats per token of the first tokens of the validation text; `seconds` are as
    `LossCurve` has them.
    """
    kinds = {"arm": pa.string(), "seed": pa.int64(), "step": pa.int64()}
    schema = pa.schema(kinds | dict.fromkeys((*AXES, "loss"), pa.float64()))
    tables = [schema.empty_table()]
    for (arm, seed), curve in curves.items():
        n = len(curve.step)
        columns = {"arm": [arm] * n, "seed": [seed] * n} | vars(curve)
        values = [columns[name] for name in schema.names]
        values = [[None] * n if column is None else column for column in values]
        tables.append(pa.table(values, schema=schema))
    return pa.concat_tables(tables)
