"""Tuning: which values each arm is tried with before its verdict, at equal cost for every arm.

    [tuning]
    seeds = [101, 102, 103]
    grid = { "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }

trains every arm with every value on seeds of their own, and gives each arm the value that is best
there. The verdict is of fresh seeds, each arm at its choice. A candidate is one set of values;
every arm is tried with the same candidates, so that all have as many trials.

Over several keys a grid grows fast. `method = "random"` and `method = "sobol"` draw `trials`
candidates from a space of `ranges` and listed values instead; a Sobol sequence leaves smaller gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from paribus.errors import ParibusError
from paribus.metric import LONGEST
from paribus.rng import key as key_of
from paribus.rng import stream
from paribus.study.allowed_text import Name
from paribus.study.base import Grown, Spec
from paribus.study.bounds import MOST_ARMS, MOST_ENTRIES, MOST_SEED, MOST_SEEDS, Seed, Steps

MOST_WHOLE = 2**53  # up to which every whole number is one in floating point

Whole = Annotated[int, Field(gt=-MOST_WHOLE, lt=MOST_WHOLE)]
Value = bool | Whole | float | str
Candidate = dict[str, Value]
"""Values by dotted key, as an arm's `set` has them."""
Drawn = tuple[list[int], list[float]]
"""Of a point that a search draws: which of each list of values, and the share of each range."""

NOT_CHOSEN = "tuning.chosen is written when the tuning is done; leave it out of a study file"
CHOICES = ("chosen", "chosen_by_seed")  # what the tuning writes, and is no part of its plan
MOST_EXTENSIONS = 20
DRAWN_DIGITS = 4  # significant digits of a value that is drawn
MOST_DRAWS = 64  # for each candidate: what was drawn already is drawn again
EDGE = 0.1  # share of a range, on its scale, that counts as its edge


class Range(Spec):
    """Where a search draws a number from."""

    low: Whole | float
    """The smallest value."""
    high: Whole | float
    """The largest value. Of a key that is a whole number, such as warmup, both are whole, and so is
    what is drawn."""
    scale: Literal["log", "linear"] = "log"
    """On which draws are uniform; "log" needs a `low` above 0."""

    @property
    def is_whole(self) -> bool:
        """Whether whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> Value:
        """Return the value at a share of the range, rounded to DRAWN_DIGITS significant digits; a
        whole number in equal shares."""
        low, high = float(self.low), float(self.high)
        if self.is_whole:
            low, high = low - 0.5, high + 0.5
        if self.scale == "log":
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        if self.is_whole:
            return min(max(round(value), int(self.low)), int(self.high))
        return float(f"{value:.{DRAWN_DIGITS}g}")

    def share(self, value: float) -> float:
        """Return at which share of the range a value is, on its scale."""
        low, high = float(self.low), float(self.high)
        if self.scale == "log":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


RANGE_KEYS = frozenset(Range.model_fields)


class Tuning(Grown):
    """A search over values of any keys of `training` and `model`, the same for every arm."""

    later: ClassVar[tuple[str, ...]] = ("chosen_by_seed",)

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
    method: Literal["grid", "random", "sobol"] = "grid"
    """Every combination of the values in `grid`; or `trials` candidates, random ones or the points
    of a scrambled Sobol sequence, which are spread more evenly. The same for every arm."""
    grid: Annotated[
        dict[
            str,
            Annotated[tuple[Value, ...], Field(strict=False, min_length=1, max_length=MOST_ARMS)],
        ],
        Field(max_length=MOST_ENTRIES),
    ] = Field(default_factory=dict)
    """Values by dotted key, such as "training.optimizer.learning_rate" = [3e-4, 1e-3]. A random or
    Sobol search draws one of them."""
    ranges: Annotated[dict[str, Range], Field(max_length=MOST_ENTRIES)] = Field(
        default_factory=dict
    )
    """Of a random or Sobol search: numbers between `low` and `high`, uniform on their `scale`."""
    trials: Annotated[int, Field(gt=0, le=MOST_ARMS)] | None = None
    """Of a random or Sobol search: how many candidates each arm is tried with, no two alike."""
    seed: Seed = 0
    """Of a random or Sobol search."""
    select: Annotated[str, Field(max_length=LONGEST)] = ""
    """The metric whose mean over tuning seeds chooses: whatever is measured, and has a better
    direction. Left out, it is the held-out loss, or the first primary endpoint of a trainer that
    has none."""
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
    chosen_by_seed: Annotated[
        dict[str, dict[Name, dict[str, Value]]], Field(max_length=MOST_SEEDS)
    ] = Field(default_factory=dict)
    """The same by verdict seed, where each is tuned anew (`inference.choice = "replicated"`)."""

    def same_plan(self, other: Tuning) -> bool:
        """Return whether both say the same, whatever was chosen."""
        return self.model_copy(update={name: getattr(other, name) for name in CHOICES}) == other

    @property
    def is_chosen(self) -> bool:
        """Whether anything was chosen yet."""
        return bool(self.chosen or self.chosen_by_seed)

    def seeds_for(self, number: int) -> tuple[int, ...]:
        """Return the tuning seeds of verdict seed `number` (from 0), where each is tuned anew.

        Those of the first are `seeds`; of each further one they are shifted by their whole span, so
        that no two have one in common.
        """
        shift = number * (max(self.seeds) - min(self.seeds) + 1)
        return tuple(seed + shift for seed in self.seeds)

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
        found: list[Candidate] = []
        for drawn in self._draws(self.trials):
            if drawn not in found:
                found.append(drawn)
            if len(found) == self.trials:
                break
        return found

    def _draws(self, n: int) -> Iterator[Candidate]:
        """Yield MOST_DRAWS times `n` candidates of a search."""
        for listed, shares in self._random(n) if self.method == "random" else self._sobol(n):
            drawn = (values[at] for values, at in zip(self.grid.values(), listed, strict=True))
            found: Candidate = dict(zip(self.grid, drawn, strict=True))
            for (name, one), share in zip(self.ranges.items(), shares, strict=True):
                found[name] = one.at(share)
            yield found

    def _random(self, n: int) -> Iterator[Drawn]:
        rng = stream(self.seed, "tuning")
        for _ in range(n * MOST_DRAWS):
            listed = [int(rng.integers(len(values))) for values in self.grid.values()]
            yield listed, [float(rng.random()) for _ in self.ranges]

    def _sobol(self, n: int) -> Iterator[Drawn]:
        from scipy.stats import qmc  # half a second, for those who ask for it

        sequence = qmc.Sobol(len(self.keys), rng=key_of(self.seed, "tuning"))
        # A power of two of them, as it must be; the first are those of any longer sequence.
        for point in sequence.random_base2(math.ceil(math.log2(n * MOST_DRAWS))).tolist():
            of_grid, of_ranges = point[: len(self.grid)], point[len(self.grid) :]
            sizes = map(len, self.grid.values())
            yield [int(u * size) for u, size in zip(of_grid, sizes, strict=True)], of_ranges


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


def _combinations(grid: Mapping[str, Sequence[Value]]) -> list[Candidate]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def why_no_tuning(
    tuning: Tuning,
    seeds: Sequence[int],
    arms: Mapping[str, Iterable[str]],
    why_not_tuned: Callable[[str], str] = lambda key: "",
    *,
    anew: bool = False,
) -> str:
    """Return what is wrong with a plan of tuning, in a line; empty where nothing is.

    `seeds` are the verdict's; `arms` the keys that each arm sets; `why_not_tuned` says of a key of
    the trainer's why it cannot be; `anew` is whether each verdict seed is tuned anew.
    """
    if len(set(tuning.seeds)) < len(tuning.seeds):
        return f"tuning.seeds {list(tuning.seeds)} name one twice; each seed is one trial"
    if shared := sorted(set(tuning.seeds) & set(seeds)):
        return (
            f"tuning.seeds and seeds share {shared[0]}; what chooses a value cannot judge it: "
            "tune on other seeds, such as 101"
        )
    if anew and (why := _why_not_anew(tuning, seeds)):
        return why
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


def _why_not_anew(tuning: Tuning, seeds: Sequence[int]) -> str:
    every = {seed for number in range(len(seeds)) for seed in tuning.seeds_for(number)}
    first = max(seeds) + 1
    if shared := sorted(every & set(seeds)):
        return (
            f"tuning anew for each of {len(seeds)} seeds takes tuning seeds {min(every)} to "
            f"{max(every)}, and {shared[0]} is a verdict seed; what chooses a value cannot judge "
            f"it: begin tuning.seeds at {first}"
        )
    if max(every) > MOST_SEED:
        return (
            f"tuning anew for each of {len(seeds)} seeds reaches tuning seed {max(every)}; "
            f"{MOST_SEED} is the largest: begin tuning.seeds at {first}"
        )
    return ""


def _why_no_search(tuning: Tuning) -> str:
    is_grid, method = tuning.method == "grid", f"tuning.method = '{tuning.method}'"
    if not tuning.keys:
        return (
            "tuning has nothing to try; state grid = "
            '{ "training.optimizer.learning_rate" = [3e-4, 1e-3, 3e-3] }'
        )
    if is_grid and tuning.trials is not None:
        return (
            "tuning.trials is of method = 'random' or 'sobol'; a grid is tried as a whole: leave "
            "trials out"
        )
    if is_grid and tuning.ranges:
        return (
            "tuning.ranges are of method = 'random' or 'sobol'; a grid lists its values: add a "
            "method, or list them in grid"
        )
    if not is_grid and tuning.trials is None:
        return f"{method} needs trials, how many each arm is tried with, such as trials = 16"
    if not is_grid and tuning.edge == "extend":
        return f"tuning.edge = 'extend' is of a grid; {method} has edge = 'caveat'"
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
    if tuning.trials is not None and (n_found := len(tuning.candidates)) < tuning.trials:
        return (
            f"tuning.trials = {tuning.trials}, and the space has {n_found} candidates; ask for "
            "fewer, or try all with method = 'grid'"
        )
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


def open_edges(
    tuning: Tuning, tried: Sequence[Candidate], best: Candidate
) -> list[tuple[str, int]]:
    """Return the keys of which a value better than that of `best` may lie beyond what was tried.

    Of listed values an outermost one, but 0 below all others: nothing lies below. What is drawn is
    outermost by chance too; it counts in the outer tenth of its range.
    """
    found = [edge for edge in at_edges(tried, best) if edge[0] not in tuning.ranges]
    for key, one in tuning.ranges.items():
        share = one.share(float(best[key]))
        found += [(key, -1)] if share <= EDGE else [(key, 1)] if share >= 1 - EDGE else []
    return [(key, side) for key, side in found if side > 0 or best[key] != 0]


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
