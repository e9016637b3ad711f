"""Latest weight averaging (Kaddour 2022; Sanyal et al. 2023): the mean of the last `snapshots` of
those taken every `every` steps, at any point of the run."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.training.averages import Options, Taken, average


class LAWAOptions(Options):
    """How many snapshots, and from how many steps to the next."""

    snapshots: Annotated[int, Field(ge=1, le=100)] = 5
    every: Annotated[int, Field(ge=1)] = 100


def mean(at: Taken) -> Tensor | None:
    """Return the mean of those that there are; None before the first."""
    n = min(at.done // at.options.every, at.options.snapshots)
    return torch.stack(list(at.kept[:n])).mean(dim=0) if n else None


@average(
    "lawa",
    give=mean,
    copies=lambda options: options.snapshots,
    options=LAWAOptions,
    source="Kaddour 2022",
)
def lawa(at: Taken) -> None:
    """Put the weights in the place of the oldest snapshot."""
    number, over = divmod(at.done, at.options.every)
    if not over:
        at.kept[(number - 1) % at.options.snapshots].copy_(at.weights)
