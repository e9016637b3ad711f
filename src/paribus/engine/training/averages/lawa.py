"""Latest weight averaging (Kaddour 2022; Sanyal et al. 2023): the mean of the last snapshots."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from paribus.engine.training.averages import Options, Taken, average


class LAWAOptions(Options):
    """Number of snapshots, and steps between two of them."""

    snapshots: Annotated[int, Field(ge=1, le=100)] = 5
    every: Annotated[int, Field(ge=1)] = 100


def mean(at: Taken) -> Tensor | None:
    """Return the mean of the snapshots; None before the first."""
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
    """Replace the oldest snapshot with the weights."""
    number, remainder = divmod(at.done, at.options.every)
    if not remainder:
        at.kept[(number - 1) % at.options.snapshots].copy_(at.weights)
