"""How many windows each step of a run learns from: as many in all, or more and more of them.

A ramp cuts the windows of a run of constant batches into others: each is trained on once, in the
same order, so that an arm with a ramp and one without see the same sequences.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from paribus.engine.setting.bounds import Batch
from paribus.explain import explain
from paribus.study.base import Spec

Share = Annotated[float, Field(gt=0, le=1)]
Point = Annotated[tuple[Share, Batch], Field(strict=False)]
NUMBER = TypeAdapter(Annotated[Batch, Field(strict=True)])


class Ramp(Spec):
    """A batch that grows with what was trained on."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    first: Batch = Field(alias="from")
    """Windows of the first steps."""
    to: Batch
    """Windows of the last steps. Budget, warmup and `evaluation.every` count batches of so many."""
    until: Share
    """The share of the tokens by which it has grown."""
    shape: Literal["linear", "doubling"] | Annotated[tuple[Point, ...], Field(strict=False)] = (
        "linear"
    )
    """`linear` in tokens; `doubling`, after equal shares of them; or sizes in between and the share
    of the tokens that each begins at: `[[0.05, 8], [0.1, 12]]`."""

    def __hash__(self) -> int:
        return hash((self.first, self.to, self.until, self.shape))

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.first >= self.to:
            raise ValueError(
                f"a ramp from {self.first} to {self.to} does not grow; state a smaller `from`, or "
                "batch_size as one number"
            )
        if not isinstance(self.shape, str):
            places, sizes = zip((0.0, self.first), *self.shape, (self.until, self.to), strict=True)
            if any(a >= b for of in (places, sizes) for a, b in pairwise(of)):
                raise ValueError(
                    f"shape = {[list(point) for point in self.shape]} does not grow, from a share "
                    f"of 0 with {self.first} windows to {self.until:g} with {self.to}: give both "
                    "in rising order"
                )
        doublings = (self.to // self.first).bit_length() - 1
        if self.shape == "doubling" and self.first << doublings != self.to:
            raise ValueError(
                f"no number of doublings leads from {self.first} to {self.to}; state a `to` such "
                f"as {self.first << doublings}, or shape = 'linear'"
            )
        return self

    def size(self, share: float, unit: int) -> int:
        """Return the windows of a step that begins when `share` of the way to `until` is made, in
        whole numbers of `unit`."""
        if self.shape == "doubling":
            doublings = (self.to // self.first).bit_length() - 1
            return self.first << int(share * doublings)
        if not isinstance(self.shape, str):
            begun = share * self.until + 1e-9  # of the tokens, whatever the division rounds
            return max((size for place, size in self.shape if place <= begun), default=self.first)
        return int(self.first + (self.to - self.first) * share) // unit * unit


def _number_or_ramp(given: Any) -> int | Ramp:
    """Return a batch size as a study states it: what is wrong is told of the one that was meant."""
    if not isinstance(given, dict):
        return given if isinstance(given, Ramp) else NUMBER.validate_python(given)
    try:
        return Ramp.model_validate(given)
    except ValidationError as error:
        raise ValueError(explain(error, Ramp)) from None


def _plain(size: int | Ramp) -> int | dict[str, Any]:
    return size.model_dump(mode="json") if isinstance(size, Ramp) else size


_SCHEMA = {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "object"}]}
BatchSize = Annotated[
    int | Ramp,
    PlainValidator(_number_or_ramp),
    PlainSerializer(_plain),
    WithJsonSchema(_SCHEMA),
]


def total_steps(size: int | Ramp, windows: int, unit: int) -> int:
    """Return how many steps a run over so many windows has."""
    return len(_ends(size, windows, unit)) if isinstance(size, Ramp) else windows // size


def windows_after(size: int | Ramp, windows: int, unit: int, t: int) -> int:
    """Return how many of `windows` a run was trained on after its first t steps; after the last,
    one such as this would have taken as many more."""
    if not isinstance(size, Ramp):
        return t * size
    ends = _ends(size, windows, unit)
    if t > len(ends):
        return windows + (t - len(ends)) * size.to
    return int(ends[t - 1]) if t else 0


def step_with(size: int | Ramp, windows: int, unit: int, wanted: int) -> int:
    """Return after how many steps a run was first trained on `wanted` windows."""
    if not isinstance(size, Ramp):
        return -(-wanted // size)
    return int(np.searchsorted(_ends(size, windows, unit), wanted)) + 1 if wanted else 0


@lru_cache(maxsize=64)
def _ends(ramp: Ramp, windows: int, unit: int) -> np.ndarray:
    """Return [steps] how many windows a run was trained on after each of its steps.

    Steps go by size. What is left over is one step of its own, in its place by size: so the whole
    is `windows` exactly.
    """
    limit, done = round(ramp.until * windows), 0
    sizes: list[int] = []
    while done < limit:
        size = ramp.size(done / limit, unit)
        if done + size > windows:
            break
        sizes.append(size)
        done += size
    whole, rest = divmod(windows - done, ramp.to)
    sizes += [ramp.to] * whole + ([rest] if rest else [])
    return np.cumsum(np.sort(np.array(sizes, np.int64)))
