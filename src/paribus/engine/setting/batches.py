"""Number of windows in every step: a constant batch, or one that grows with the tokens.

A ramp divides the windows of a run with a constant batch into other steps. Every window is used
once and in the same order, so an arm with a ramp and one without see the same sequences.
"""

from __future__ import annotations

from functools import lru_cache
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

from paribus.explain import explain
from paribus.study.base import Spec

Batch = Annotated[int, Field(gt=0, le=2**20)]
Share = Annotated[float, Field(gt=0, le=1)]
NUMBER = TypeAdapter(Annotated[Batch, Field(strict=True)])


class Ramp(Spec):
    """A batch that grows with the tokens trained on."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    first: Batch = Field(alias="from")
    """Windows of the first steps."""
    to: Batch
    """Windows of the last steps. Budget, warmup and `evaluation.every` count batches of this size.
    """
    until: Share
    """Share of the tokens after which the batch has grown."""
    shape: Literal["linear", "doubling"] = "linear"
    """`linear` in tokens, or `doubling` after equal shares of them."""

    def __hash__(self) -> int:
        return hash((self.first, self.to, self.until, self.shape))

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.first >= self.to:
            raise ValueError(
                f"a ramp from {self.first} to {self.to} does not grow; set a smaller `from`, or "
                "batch_size as one number"
            )
        if self.shape == "doubling" and self.first << self._doublings != self.to:
            raise ValueError(
                f"no number of doublings leads from {self.first} to {self.to}; set `to` to "
                f"{self.first << self._doublings}, or shape = 'linear'"
            )
        return self

    @property
    def _doublings(self) -> int:
        return (self.to // self.first).bit_length() - 1

    def size(self, share: float, unit: int) -> int:
        """Return the number of windows of a step that begins at this share of the way to `until`.

        A linear ramp grows by multiples of `unit`.
        """
        if self.shape == "doubling":
            return self.first << int(share * self._doublings)
        return int(self.first + (self.to - self.first) * share) // unit * unit


def _number_or_ramp(value: Any) -> int | Ramp:
    """Validate a batch size, with the errors for a number or a ramp, whichever was given."""
    if isinstance(value, Ramp):
        return value
    if not isinstance(value, dict):
        return NUMBER.validate_python(value)
    try:
        return Ramp.model_validate(value)
    except ValidationError as error:
        raise ValueError(explain(error, Ramp)) from None


BatchSize = Annotated[
    int | Ramp,
    PlainValidator(_number_or_ramp),
    PlainSerializer(lambda size: size if isinstance(size, int) else size.model_dump(mode="json")),
    WithJsonSchema({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "object"}]}),
]


@lru_cache(maxsize=64)
def step_ends(ramp: int | Ramp, windows: int, unit: int) -> np.ndarray:
    """Return the windows trained on after each step, [steps].

    The steps of a ramp are sorted by size. The remainder is a step of its own, so that the total is
    `windows`.
    """
    if isinstance(ramp, int):
        return np.arange(ramp, windows + 1, ramp)
    limit, done = round(ramp.until * windows), 0
    sizes: list[int] = []
    while done < limit:
        size = ramp.size(done / limit, unit)
        if done + size > windows:
            break
        sizes.append(size)
        done += size
    full, remainder = divmod(windows - done, ramp.to)
    sizes += [ramp.to] * full + ([remainder] if remainder else [])
    return np.cumsum(np.sort(np.array(sizes, np.int64)))
