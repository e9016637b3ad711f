"""Budgets in FLOPs or seconds, held against the records of the two trials that they matched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

ROUNDING = 1e-9  # a count of FLOPs is kept as a float
CALLED = {"flops": "FLOPs", "seconds": "seconds"}

State = Literal["held", "broken", "not proven"]


def matched_costs(
    own: Mapping[str, Any], other: Mapping[str, Any], words: str
) -> tuple[State, str]:
    """Return whether two trials (trial.json) spent the same, to the nearest step; `words` say
    tokens.

    FLOPs are also held against what was counted of each trial's model. Seconds are those of a step
    as it was measured at registration: how long the training then took is in timing.json.
    """
    spent, each = [], []
    for trial in (own, other):
        cost = trial["setting"]["training"].get("step_cost")
        if not isinstance(cost, int | float) or not cost > 0:
            return "not proven", f"no record of what a step costs: {words}"
        spent.append(trial["iterations"] * cost)
        each.append(cost)
    unit = own["setting"]["training"]["budget"]
    share = (spent[0] - spent[1]) / spent[1]
    told = (
        f"{spent[0]:.6g} {CALLED[unit]} against {spent[1]:.6g} ({share:+.2%}), to the nearest step "
        f"of {each[0]:.6g} and {each[1]:.6g}; {words}"
    )
    if abs(spent[0] - spent[1]) > max(each):
        return "broken", told
    if unit == "seconds":
        return "held", f"{told}; a step was timed once, before the study was registered"
    for trial, cost in zip((own, other), each, strict=True):
        counted = trial.get("flops", {}).get("per_token")
        if counted is None:
            return "not proven", f"as stated, and not counted: {told}"
        of_step = counted * trial["tokens"] / max(trial["iterations"], 1)
        if not math.isclose(of_step, cost, rel_tol=ROUNDING):
            return "broken", f"a step has {of_step:.6g} FLOPs, and {cost:.6g} are stated: {told}"
    return "held", told
