"""Tuning: which values each arm is tried with before its verdict, at equal cost for every arm.

    [tuning]
    seeds = [101, 102, 103]
    grid = { "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }

trains every arm with every value on seeds of their own, and gives each arm the value that is best
there. The verdict is of fresh seeds, each arm at its choice. A candidate is one set of values;
every arm is tried with the same candidates, so that all have as many trials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from paribus.errors import ParibusError
from paribus.metric import LONGEST
from paribus.study.allowed_text import Name
from paribus.study.base import Part
from paribus.study.bounds import MOST_ARMS, MOST_ENTRIES, MOST_SEEDS, Seed, Steps

MOST_WHOLE = 2**53  # up to which every whole number is one in floating point

Whole = Annotated[int, Field(gt=-MOST_WHOLE, lt=MOST_WHOLE)]
Value = bool | Whole | float | str
Candidate = dict[str, Value]
"""Values by dotted key, as an arm's `set` has them."""

NOT_CHOSEN = "tuning.chosen is written when the tuning is done; leave it out of a study file"
CHOSEN = "chosen"  # what the tuning writes, and is no part of its plan
VERTEX_DIGITS = 4  # significant digits of a value at the vertex of a parabola


class Tuning(Part):
    """A search over values of any keys of `training` and `model`, the same for every arm."""

    @model_validator(mode="before")
    @classmethod
    def _keys_are_quoted(cls, table: Any) -> Any:
        if isinstance(table, dict):
            _require_quoted("grid", table.get("grid"))
            listed = table.get("combinations")
            for candidate in listed if isinstance(listed, list | tuple) else ():
                _require_quoted("combinations", candidate)
        return table

    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=MOST_SEEDS)] = (
        101,
        102,
        103,
        104,
        105,
        106,
    )
    """Of the tuning trials; the verdict's are others."""
    grid: Annotated[
        dict[
            str,
            Annotated[tuple[Value, ...], Field(strict=False, min_length=1, max_length=MOST_ARMS)],
        ],
        Field(max_length=MOST_ENTRIES),
    ] = Field(default_factory=dict)
    """Values by dotted key, such as "training.optimizer.learning_rate" = [3e-4, 1e-3]. Every
    combination of them is a candidate."""
    combinations: Annotated[
        tuple[Annotated[dict[str, Value], Field(max_length=MOST_ENTRIES)], ...],
        Field(strict=False, max_length=MOST_ARMS),
    ] = ()
    """The candidates themselves, in place of a grid: tables of values by dotted key."""
    select: Annotated[str, Field(max_length=LONGEST)] = ""
    """The metric whose mean over tuning seeds chooses: whatever is measured, and has a better
    direction. Left out, it is the held-out loss, or the first primary endpoint of a trainer that
    has none."""
    iterations: Steps | None = None
    """Of a tuning trial; None is as many as the verdict's."""
    chosen: Annotated[dict[Name, dict[str, Value]], Field(max_length=MOST_ARMS)] = Field(
        default_factory=dict
    )
    """By arm what was chosen: written when the tuning is done, and no part of the plan."""

    def same_plan(self, other: Tuning) -> bool:
        """Return whether both say the same, whatever was chosen."""
        return self.model_copy(update={CHOSEN: other.chosen}) == other

    @property
    def keys(self) -> tuple[str, ...]:
        """The dotted keys that are tuned."""
        return tuple(self.grid or (self.combinations[0] if self.combinations else ()))

    @property
    def candidates(self) -> list[Candidate]:
        """Return what every arm is tried with, in order."""
        if self.combinations:
            return [dict(candidate) for candidate in self.combinations]
        return [
            dict(zip(self.grid, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]


def _require_quoted(name: str, table: Any) -> None:
    """Raise ParibusError if TOML read a dotted key as tables within tables."""
    if not isinstance(table, dict):
        return
    for first, inner in table.items():
        path, value = [str(first)], inner
        while isinstance(value, dict) and value:
            key, value = next(iter(value.items()))
            path.append(str(key))
        if len(path) > 1:
            key = ".".join(path)
            raise ParibusError(
                f"tuning.{name} has the key {key} without quotes, which TOML reads as tables; "
                f'write "{key}" = ...'
            )


def why_no_tuning(
    tuning: Tuning,
    seeds: Sequence[int],
    arms: Mapping[str, Iterable[str]],
    why_not_tuned: Callable[[str], str] = lambda key: "",
) -> str:
    """Return what is wrong with a plan of tuning, in a line; empty where nothing is.

    `seeds` are the verdict's; `arms` the keys that each arm sets; `why_not_tuned` says of a key of
    the trainer's why it cannot be.
    """
    if len(set(tuning.seeds)) < len(tuning.seeds):
        return f"tuning.seeds {list(tuning.seeds)} name one twice; each seed is one trial"
    if shared := sorted(set(tuning.seeds) & set(seeds)):
        return (
            f"tuning.seeds and seeds share {shared[0]}; what chooses a value cannot judge it: "
            "tune on other seeds, such as 101"
        )
    if why := _why_no_search(tuning):
        return why
    for key in tuning.keys:
        if why := why_not_tuned(key):
            return why
        for arm, set_ in arms.items():
            for other in set_:
                if _overlap(key, other):
                    return (
                        f"tuning sets {key}, and so does arm '{arm}' ({other}); every arm is "
                        "tuned over the same values: leave it out of one"
                    )
    for key, other in itertools.combinations(tuning.keys, 2):
        if _overlap(key, other) or _overlap(other, key):
            return f"tuning sets {key} and {other}, which overlap; name each key once"
    return ""


def _why_no_search(tuning: Tuning) -> str:
    if not tuning.keys:
        return (
            "tuning has nothing to try; state grid = "
            '{ "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }'
        )
    if tuning.grid and tuning.combinations:
        return "tuning has a grid and combinations; state one of them"
    if any(candidate.keys() != set(tuning.keys) for candidate in tuning.combinations):
        return f"tuning.combinations have different keys; name {', '.join(tuning.keys)} in each"
    n_candidates = len(tuning.combinations) or math.prod(map(len, tuning.grid.values()))
    if n_candidates > MOST_ARMS:
        return f"tuning.grid has {n_candidates:,} combinations; {MOST_ARMS} are the most"
    candidates = tuning.candidates
    for key, values in tuning.grid.items():
        if len(set(map(_distinct, values))) < len(values):
            return f"tuning.grid has a value of {key} twice in {list(values)}"
    alike = {tuple(_distinct(candidate[key]) for key in tuning.keys) for candidate in candidates}
    if len(alike) < n_candidates:
        return "tuning.combinations has a candidate twice; state each once"
    for key in tuning.keys:
        values = [candidate[key] for candidate in candidates]
        if any(isinstance(value, str) and ":" in value for value in values):
            return f"tuning has own code at {key}; what an arm runs is stated by the arm"
    if n_candidates < 2:
        return f"tuning tries one value of {tuning.keys[0]}; a choice needs two"
    return ""


def _distinct(value: Value) -> tuple[bool, Value]:
    """Return a key of a value by which True is not 1."""
    return isinstance(value, bool), value


def _overlap(key: str, other: str) -> bool:
    if other == "model.preset":
        return key.startswith("model.")
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def at_edges(tried: Sequence[Candidate], best: Candidate) -> list[tuple[str, int]]:
    """Return the keys of which `best` has an outermost number of those tried, and where: -1
    below, or 1.

    A key with a single value, or with words among its values, has no edge.
    """
    found = []
    for key, value in best.items():
        numbers = _numbers(tried, key)
        if len(numbers) < 2 or isinstance(value, (bool, str)):
            continue
        if value == numbers[0]:
            found.append((key, -1))
        elif value == numbers[-1]:
            found.append((key, 1))
    return found


def open_edges(tried: Sequence[Candidate], best: Candidate) -> list[tuple[str, int]]:
    """Return the keys of which a value better than that of `best` may lie beyond what was tried:
    an outermost one, except 0 below all others, because nothing lies below."""
    return [(key, side) for key, side in at_edges(tried, best) if side > 0 or best[key] != 0]


def _numbers(tried: Sequence[Candidate], key: str) -> list[int | float]:
    """Return the values of a key that were tried, ascending; empty where one is no number."""
    values = {one[key] for one in tried}
    if any(isinstance(value, (bool, str)) for value in values):
        return []
    return sorted(value for value in values if not isinstance(value, str))
