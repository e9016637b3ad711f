"""Interim looks and added stages: the order in which seeds are trained and tested.

    seeds = { looks = [5, 8, 12, 20] }

trains seeds 1 to 5 of every arm and tests them; unresolved contrasts continue to 8, 12 and 20
seeds. The level is spent over the looks (`paribus.statistics.Looks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, ValidationError

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.study.base import MOST_SEEDS, Spec

LEAST_PAIRS = 5  # fewer are described and not tested (`paribus.statistics.DESCRIPTIVE_BELOW`)
MOST_LOOKS = 50
LIST = "list"  # of `seeds` as a table; its other keys are those of `Plan`


class Plan(Spec):
    """Plan of interim looks at the data."""

    looks: Annotated[
        tuple[Annotated[int, Field(gt=0, le=MOST_SEEDS)], ...],
        Field(strict=False, min_length=1, max_length=MOST_LOOKS),
    ]
    """Number of seeds at each look, ascending; the last look has all seeds."""


def split_seeds(table: dict[str, Any]) -> dict[str, Any]:
    """Return a study's table with `seeds = { looks = ... }` split into a list of seeds and a
    plan."""
    seeds = table.get("seeds")
    if not isinstance(seeds, dict):
        return table
    stated = {key: value for key, value in seeds.items() if key != LIST}
    try:
        plan = Plan.model_validate(stated)
    except ValidationError as error:
        raise ParibusError(f"seeds.{explain(error, Plan)}") from None
    listed = seeds.get(LIST, list(range(1, plan.looks[-1] + 1)))
    return table | {"seeds": listed, "plan": stated}


def plan_problems(plan: Plan | None, stages: Sequence[int], seeds: Sequence[int]) -> Iterator[str]:
    """Yield a line for each problem of a plan or of stages with these seeds."""
    if stages and (len(stages) < 2 or min(stages) < 2 or sum(stages) != len(seeds)):
        yield (
            f"stages {list(stages)} do not fit {len(seeds)} seeds; `paribus extend` adds a stage"
        )
    if plan is None:
        return
    looks = plan.looks
    if stages:
        yield "a study with looks has no second stage; list the seeds, or plan more looks"
    if not looks[1:] or looks[0] < LEAST_PAIRS or looks[-1] != len(seeds):
        yield (
            f"looks {list(looks)} must be two or more, the first at {LEAST_PAIRS} seeds or later "
            f"(fewer are described and not tested), the last at all {len(seeds)} seeds"
        )
    if any(after <= before for before, after in pairwise(looks)):
        yield f"looks {list(looks)} do not ascend; give each look more seeds than the one before"
