"""Tuning: which values each arm is tried with before its verdict, at equal cost for every arm.

    [tuning]
    seeds = [101, 102, 103]
    grid = { "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }

trains every arm with every value on seeds of their own, and gives each arm the value that is best
there. The verdict is of fresh seeds, each arm at its choice. A candidate is one set of values;
every arm is tried with the same candidates, so that all have as many trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paribus.errors import ParibusError
from paribus.metric import LONGEST
from paribus.rng import stream
from paribus.study.allowed_text import Name
from paribus.study.base import Spec
from paribus.study.bounds import MOST_ARMS, MOST_ENTRIES, MOST_SEEDS, Seed, Steps

Value = bool | int | float | str
Candidate = dict[str, Value]
"""Values by dotted key, as an arm's `set` has them."""

NOT_CHOSEN = "tuning.chosen is written when the tuning is done; leave it out of a study file"
MOST_EXTENSIONS = 20
DRAWN_DIGITS = 4  # significant digits of a value that is drawn


class Range(Spec):
    """Where a random search draws a number from."""

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    scale: Literal["log", "linear"] = "log"
    """On which draws are uniform."""


RANGE_KEYS = frozenset(Range.model_fields)


class Tuning(Spec):
    """A search over values of any keys of `training` and `model`, the same for every arm."""

    @model_validator(mode="before")
    @classmethod
    def _keys_are_quoted(cls, table: Any) -> Any:
        if isinstance(table, dict):
            for name in ("grid", "ranges"):
                _require_quoted(name, table.get(name))
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
    method: Literal["grid", "random"] = "grid"
    """Every combination of the values in `grid`; or so many random ones."""
    grid: Annotated[
        dict[
            str,
            Annotated[tuple[Value, ...], Field(strict=False, min_length=1, max_length=MOST_ARMS)],
        ],
        Field(max_length=MOST_ENTRIES),
    ] = Field(default_factory=dict)
    """Values by dotted key, such as "training.optimizer.learning_rate" = [3e-4, 1e-3]."""
    ranges: Annotated[dict[str, Range], Field(max_length=MOST_ENTRIES)] = Field(
        default_factory=dict
    )
    """Of a random search: numbers between `low` and `high`, uniform on their `scale`."""
    trials: Annotated[int, Field(gt=0, le=MOST_ARMS)] | None = None
    """Of a random search: how many candidates each arm is tried with."""
    seed: Seed = 0
    """Of a random search."""
    select: Annotated[str, Field(min_length=1, max_length=LONGEST)] = "validation_loss"
    """The metric whose mean over tuning seeds chooses: whatever is measured, and has a better
    direction."""
    edge: Literal["extend", "caveat"] = "caveat"
    """What a best value at the edge of those tried means: the grid grows there, for all arms; or
    the verdict says so."""
    extensions: Annotated[int, Field(ge=1, le=MOST_EXTENSIONS)] = 2
    """How often the grid may grow; a best value that is still at its edge is a caveat."""
    values: Annotated[int, Field(ge=1, le=MOST_EXTENSIONS)] = 1
    """By how many values it grows each time."""
    factor: Annotated[float, Field(gt=1)] | None = None
    """Ratio of a new value to its neighbour; None is that of the two outermost ones."""
    iterations: Steps | None = None
    """Of a tuning trial; None is as many as the verdict's."""
    chosen: Annotated[dict[Name, dict[str, Value]], Field(max_length=MOST_ARMS)] = Field(
        default_factory=dict
    )
    """By arm what was chosen: written when the tuning is done, and no part of the plan."""

    def same_plan(self, other: Tuning) -> bool:
        """Return whether both say the same, whatever was chosen."""
        return self.model_copy(update={"chosen": other.chosen}) == other

    @property
    def keys(self) -> tuple[str, ...]:
        """The dotted keys that are tuned."""
        return (*self.grid, *self.ranges)

    @property
    def candidates(self) -> list[Candidate]:
        """Return what every arm is tried with at first, in order; a grid may be extended."""
        if self.method == "grid":
            return _combinations(self.grid)
        assert self.trials is not None
        rng = stream(self.seed, "tuning")
        found: list[Candidate] = []
        for _ in range(self.trials):
            drawn: Candidate = {
                key: values[int(rng.integers(len(values)))] for key, values in self.grid.items()
            }
            drawn |= {key: _drawn(one, float(rng.random())) for key, one in self.ranges.items()}
            found.append(drawn)
        return found


def _require_quoted(name: str, table: Any) -> None:
    """Raise ParibusError where a dotted key was taken for tables within tables."""
    if not isinstance(table, dict):
        return
    for first, inner in table.items():
        path, value = [str(first)], inner
        while isinstance(value, dict) and value and not RANGE_KEYS.issuperset(value):
            key, value = next(iter(value.items()))
            path.append(str(key))
        if len(path) > 1:
            key = ".".join(path)
            raise ParibusError(
                f"tuning.{name} has the key {key} without quotes, which TOML reads as tables; "
                f'write "{key}" = ...'
            )


def _drawn(between: Range, u: float) -> float:
    """Return the value at the share `u` of a range, rounded to DRAWN_DIGITS significant digits."""
    if between.scale == "log":
        low, high = math.log(between.low), math.log(between.high)
        value = math.exp(low + u * (high - low))
    else:
        value = between.low + u * (between.high - between.low)
    return float(f"{value:.{DRAWN_DIGITS}g}")


def _combinations(grid: Mapping[str, Sequence[Value]]) -> list[Candidate]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def why_no_tuning(
    tuning: Tuning,
    seeds: Iterable[int],
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
    for one in tuning.keys:
        for other in tuning.keys:
            if one != other and _overlap(one, other):
                return f"tuning sets {one} and {other}, which overlap; name each key once"
    return ""


def _why_no_search(tuning: Tuning) -> str:
    random = tuning.method == "random"
    if not tuning.keys:
        return (
            "tuning has nothing to try; state grid = "
            '{ "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }'
        )
    if random != (tuning.trials is not None):
        return (
            "tuning.method = 'random' needs trials, how many each arm is tried with"
            if random
            else "tuning.trials is of method = 'random'; a grid is tried as a whole"
        )
    if not random and tuning.ranges:
        return "tuning.ranges are of method = 'random'; a grid lists its values"
    if random and tuning.edge == "extend":
        return "tuning.edge = 'extend' is of a grid; a random search has edge = 'caveat'"
    for key, values in tuning.grid.items():
        if len({(isinstance(value, bool), value) for value in values}) < len(values):
            return f"tuning.grid has a value of {key} twice in {list(values)}"
        if any(isinstance(value, str) and ":" in value for value in values):
            return f"tuning.grid has own code at {key}; what an arm runs is stated by the arm"
    for key, one in tuning.ranges.items():
        if not one.low < one.high or (one.scale == "log" and one.low <= 0):
            return (
                f"tuning.ranges: {key} from {one.low:g} to {one.high:g} is no range on a "
                f"{one.scale} scale"
            )
    n_candidates = tuning.trials or math.prod(len(values) for values in tuning.grid.values())
    if n_candidates > MOST_ARMS:
        return f"tuning.grid has {n_candidates:,} combinations; {MOST_ARMS} are the most"
    if n_candidates < 2:
        return f"tuning tries one value of {tuning.keys[0]}; a choice needs two"
    return ""


def _overlap(one: str, other: str) -> bool:
    if other == "model.preset":
        return one.startswith("model.")
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


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


def further_candidates(
    tuning: Tuning, tried: Sequence[Candidate], edges: Iterable[tuple[str, int]]
) -> list[Candidate]:
    """Return the candidates by which the grid `tried` grows at `edges`; those already tried are
    not in it.

    Beyond each edge there are `values` new ones, each `factor` times its neighbour, in every
    combination with the values of the other keys. Empty where a value there is 0, or of another
    sign than its neighbour, so that no ratio leads on.
    """
    axes: dict[str, list[Value]] = {
        key: list(dict.fromkeys(one[key] for one in tried)) for key in tuning.grid
    }
    for key, side in edges:
        numbers = _numbers(tried, key)
        if len(numbers) < 2:
            continue
        outer, inner = (numbers[-1], numbers[-2]) if side > 0 else (numbers[0], numbers[1])
        if outer == 0 or inner == 0 or (outer > 0) != (inner > 0):
            continue
        outwards = abs(outer) > abs(inner)
        ratio = tuning.factor or abs(outer / inner) ** (1 if outwards else -1)
        step = ratio if outwards else 1 / ratio
        whole = all(isinstance(number, int) for number in numbers)
        for n in range(1, tuning.values + 1):
            try:
                value = float(f"{outer * step**n:.{DRAWN_DIGITS}g}")
                axes[key].append(round(value) if whole else value)
            except OverflowError:
                break  # no number is as large
    new = _combinations({key: list(dict.fromkeys(values)) for key, values in axes.items()})
    return [one for one in new if one not in tried]


def _numbers(tried: Sequence[Candidate], key: str) -> list[int | float]:
    """Return the values of a key that were tried, ascending; empty where one is no number."""
    values = {one[key] for one in tried}
    if any(isinstance(value, (bool, str)) for value in values):
        return []
    return sorted(value for value in values if not isinstance(value, str))
