"""Batch size schedules: constant, or growing with the number of tokens trained on.

A ramp divides the same windows into different steps, and keeps their order. Arms with and without a
ramp therefore train on the same sequences in the same order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from paribus.study.base import Part

Batch = Annotated[int, Field(gt=0, le=2**20)]
Share = Annotated[float, Field(gt=0, le=1)]


class Ramp(Part):
    """Batch size that grows with the number of tokens trained on."""

    model_config = ConfigDict(serialize_by_alias=True)

    first: Batch = Field(alias="from")
    """Initial batch size in windows."""
    to: Batch
    """Final batch size in windows; budget, warmup and `evaluation.every` count steps of this size.
    """
    until: Share
    """Fraction of the run's tokens after which the batch has its final size."""
    shape: Literal["linear", "doubling"] = "linear"
    """`linear` grows linearly in tokens; `doubling` doubles at equal token intervals."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.first >= self.to:
            raise ValueError(
                f"a batch size ramp from {self.first} to {self.to} does not grow; reduce `from`, "
                "or set batch_size to a single number"
            )
        if self.shape == "doubling" and self.first << self._doublings != self.to:
            raise ValueError(
                f"shape = 'doubling' requires `to` to be `from` times a power of two, but to = "
                f"{self.to} and from = {self.first}; set to = {self.first << self._doublings}, or "
                "set shape = 'linear'"
            )
        return self

    @property
    def _doublings(self) -> int:
        return (self.to // self.first).bit_length() - 1

    def size(self, share: float, unit: int) -> int:
        """Return the batch size of a step, in windows.

        Args:
            share: progress of the ramp at the start of the step, from 0 to 1.
            unit: number of windows to which linear sizes are rounded down.
        """
        if self.shape == "doubling":
            return self.first << int(share * self._doublings)
        return int(self.first + (self.to - self.first) * share) // unit * unit


BatchSize = Annotated[
    Annotated[Batch, Tag("int")] | Annotated[Ramp, Tag("table[]")],
    Discriminator(lambda size: "table[]" if isinstance(size, dict | Ramp) else "int"),
]


@lru_cache(maxsize=64)
def step_ends(ramp: int | Ramp, windows: int, unit: int) -> np.ndarray:
    """Return the cumulative number of windows after each step, [steps].

    The steps of a ramp are sorted by size. A remainder becomes a separate step, so that the total
    is `windows`.

    Args:
        ramp: batch size.
        windows: total number of windows.
        unit: number of windows to which linear sizes are rounded down.
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
