"""Before a run: which rows of the decision table a design cannot reach, and why."""

from __future__ import annotations

from dataclasses import dataclass

from paribus import numbers
from paribus.analysis import plan_of
from paribus.decision.find import find_rule
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    OneLook,
    combined_mcnemar,
    mcnemar,
    stage_weights,
)
from paribus.study import Study


@dataclass(frozen=True)
class OutOfReach:
    """Rows that cannot fire whatever the records say, and one reason for all of them."""

    rows: tuple[str, ...]
    why: str


def out_of_reach(study: Study) -> list[OutOfReach]:
    """Rows that `study` cannot reach with its number of seeds and of contrasts."""
    n, contrasts, alpha = len(study.seeds), len(study.contrasts), study.inference.alpha
    plan = plan_of(study)
    if not contrasts:
        return []
    rule = find_rule(study)
    if n < DESCRIPTIVE_BELOW:
        rows = tuple(row.id for row in rule.rows)
        why = f"fewer than {DESCRIPTIVE_BELOW} seeds are described, not tested"
        return [OutOfReach(rows, f"{numbers.plural(n, 'seed')}: {why}")]
    least = mcnemar(0, n)
    if study.stages:  # which no further seeds follow
        least = combined_mcnemar(
            [(0, stage) for stage in study.stages],
            stage_weights(study.inference.first_stage_weight),
        )
    if plan is not None:
        least = OneLook(plan, len(plan.pairs) - 1).of_other(least)
    if least * contrasts <= alpha:
        return []
    needed = next(k for k in range(n, 1000) if mcnemar(0, k) * contrasts <= alpha)
    needed = max(needed, n + 1)
    way_out = "" if study.stages else f"; {needed} seeds can"
    combined = " of both stages" if study.stages else ""
    family = "" if contrasts == 1 else f", {least * contrasts:.3g} over {contrasts} contrasts"
    looked = " over all looks" if plan else ""
    why = (
        f"{n} seeds cannot show that an arm cures or causes instability: McNemar's exact p"
        f"{combined} is at least {least:.3g}{looked}{family}{way_out}"
    )
    without = {row.id for state, row in rule.table.items() if state.fix == "unshown"}
    rows = tuple(row.id for row in rule.rows if row.id not in without)
    return [OutOfReach(rows, why)] if rows else []
