"""Hyperparameter tuning for each arm, with the same search space and budget for every arm.

    [tuning]
    seeds = [101, 102, 103]
    grid = { "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }

This example trains every arm with every learning rate on separate seeds, and selects the best one
for each arm. The verdict uses fresh seeds, with each arm at its selected value. A combination of
values is called a candidate; every arm is trained with the same candidates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from paribus.digests import flatten
from paribus.study.base import MOST_ARMS, MOST_SEEDS, Name, Part, Seed, Steps

Value = bool | int | float | str
Candidate = dict[str, Value]
"""Hyperparameter values, keyed by dotted study key."""
# A dotted key without quotes is tables within tables in TOML, and means the same here.
Dotted = BeforeValidator(lambda table: flatten(table) if isinstance(table, dict) else table)

CHOSEN = "chosen"  # what the tuning writes, and not part of its plan
VERTEX_DIGITS = 4  # significant digits of a value at the vertex of a parabola


class Tuning(Part):
    """The `[tuning]` section: a hyperparameter search, identical for every arm."""

    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=MOST_SEEDS)] = (
        101,
        102,
        103,
        104,
        105,
        106,
    )
    """Seeds of the tuning trials, which must be disjoint from the study's seeds."""
    grid: Annotated[
        dict[
            str,
            Annotated[tuple[Value, ...], Field(strict=False, min_length=1)],
        ],
        Dotted,
    ] = Field(default_factory=dict)
    """Values by dotted key, such as "training.optimizer.learning_rate" = [3e-4, 1e-3]. The
    candidates are all combinations of these values."""
    combinations: Annotated[
        tuple[Annotated[dict[str, Value], Dotted], ...],
        Field(strict=False),
    ] = ()
    """Explicit candidates, instead of a grid: tables of values by dotted key."""
    select: str = ""
    """The metric that selects candidates by its mean over tuning seeds; it needs a direction of
    improvement. By default the held-out loss, or the first primary endpoint if the trainer has no
    held-out loss."""
    iterations: Steps | None = None
    """Number of iterations of a tuning trial; by default the same as in the final trials."""
    chosen: dict[Name, dict[str, Value]] = Field(default_factory=dict)
    """Selected values, keyed by arm and dotted key. Written after tuning; do not set it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Dotted keys of the tuned hyperparameters."""
        return tuple(self.grid or (self.combinations[0] if self.combinations else ()))

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates, in the order of `combinations` or of the grid's Cartesian product."""
        if self.combinations:
            return [dict(candidate) for candidate in self.combinations]
        return [
            dict(zip(self.grid, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]


def tuning_problems(
    tuning: Tuning,
    seeds: Sequence[int],
    arms: Mapping[str, Iterable[str]],
    why_not_tuned: Callable[[str], str],
) -> Iterator[str]:
    """Yield an error message for each problem in a `[tuning]` section.

    Args:
        tuning: the section.
        seeds: seeds of the study.
        arms: dotted keys that each arm overrides, keyed by arm.
        why_not_tuned: function that returns why a key cannot be tuned, or "" if it can.
    """
    if len(set(tuning.seeds)) < len(tuning.seeds):
        yield f"tuning.seeds {list(tuning.seeds)} contain a duplicate; list each seed once"
    if shared := sorted(set(tuning.seeds) & set(seeds)):
        yield (
            f"tuning.seeds and seeds both contain {shared[0]}, which would bias the verdict; use "
            "separate seeds for tuning, such as 101"
        )
    yield from _search_problems(tuning)
    for key in tuning.keys:
        if why := why_not_tuned(key):
            yield why
        others = [(f"arm '{arm}'", name) for arm, names in arms.items() for name in names]
        others += [("tuning", name) for name in tuning.keys if name != key]
        for owner, name in others:
            if _overlap(key, name):
                yield (
                    f"{key} is tuned but also set by {owner} ({name}), although tuned values must "
                    "be the same for every arm; remove one of the two keys"
                )


def _search_problems(tuning: Tuning) -> Iterator[str]:
    n_candidates = len(tuning.combinations) or math.prod(map(len, tuning.grid.values()))
    if not tuning.keys or n_candidates < 2:
        yield (
            "tuning has fewer than two candidates; specify several values, such as grid = "
            '{ "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }'
        )
    if tuning.grid and tuning.combinations:
        yield "tuning has both grid and combinations; remove one of them"
    if any(candidate.keys() != set(tuning.keys) for candidate in tuning.combinations):
        yield f"tuning.combinations have different keys; set {', '.join(tuning.keys)} in each table"
    if n_candidates > MOST_ARMS:
        yield (
            f"tuning has {n_candidates:,} candidates, but at most {MOST_ARMS} are allowed; remove "
            "some values"
        )
    values = [tuple(candidate[key] for key in tuning.keys) for candidate in tuning.candidates]
    if len({repr(each) for each in values}) < len(values):  # True is not 1
        yield "tuning contains a duplicate candidate; list each value once"
    if any(isinstance(value, str) and ":" in value for each in values for value in each):
        yield "tuning values cannot be custom code; set custom code in an arm instead"


def _overlap(key: str, second: str) -> bool:
    if second == "model.preset":
        return key.startswith("model.")
    return f"{key}.".startswith(f"{second}.") or f"{second}.".startswith(f"{key}.")


def open_edges(tried: Sequence[Candidate], best: Candidate) -> list[tuple[str, int]]:
    """Return (key, side) for each value in `best` at the boundary of its search range.

    The side is -1 for the smallest value tried and 1 for the largest; a better value may lie
    beyond it. 0 is not a lower boundary. Keys with a single value, or with string or boolean
    values, have no boundaries.
    """
    edges = []
    for key, value in best.items():
        values = {candidate[key] for candidate in tried}
        numbers = [number for number in values if not isinstance(number, (bool, str))]
        if len(values) == len(numbers) > 1:
            edges += [(key, -1)] * (value == min(numbers) and value != 0)
            edges += [(key, 1)] * (value == max(numbers))
    return edges
