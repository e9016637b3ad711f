"""Averages of weights along the run: one file each, declared with `@average`.

The average is evaluated, kept and exported instead of the trained weights; training does not see
it. An average is a function that updates a copy of the weights after every step. A new file in this
folder is found by its name; a study names a custom average as
`training.average.kind = "ideas.py:my_average"`.

Axes: R replicas, N parameters of one replica.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paribus.engine.rows import Rows
from paribus.engine.setting import setting
from paribus.study.choices import Decorated, Options, find_declared, read_options

__all__ = ["Average", "Averaging", "Options", "Taken", "average", "find_average"]

NONE = "none"
PACKAGE = "paribus.engine.training.averages"
KEY = "training.average"


class Taken(NamedTuple):
    """Arguments of an average after `done` steps.

    Attributes:
        weights: [R, N] trained weights.
        kept: [R, N] the average, to update in place; zero before the first step.
        done: Steps done, on the host.
        options: Options of the average.
    """

    weights: Tensor
    kept: Tensor
    done: int
    options: Any


class Average(Decorated):
    """Declares a function as an average of weights: `@average("name")`.

    The function is called after every step and writes to `kept` in place.
    """


average = Average


def find_average(spec: setting.Average, weights: Rows, folder: Path | None) -> Averaging | None:
    """Return the average that a study names; None for no average."""
    if spec.kind == NONE:
        read_options(Options, spec.options, f"{KEY}.options", NONE)
        return None
    declared = find_declared(spec.kind, Average, f"{KEY}.kind", PACKAGE, folder or Path.cwd())
    options = read_options(declared.options, spec.options, f"{KEY}.options", declared.name)
    return Averaging(declared, options, weights)


class Averaging:
    """The average of a stack's weights.

    Attributes:
        kept: Rows like the weights.
    """

    def __init__(self, average: Average, options: Options, weights: Rows) -> None:
        self._average, self._options = average, options
        self.kept = weights.like(torch.zeros_like(weights.flat))

    @torch.no_grad()
    def take(self, done: int, weights: Rows) -> None:
        """Add the weights after this many steps."""
        self._average.function(Taken(weights.flat, self.kept.flat, done, self._options))
