"""Weight averages over training steps, one per file, declared with `@average`.

The average is evaluated, saved and exported instead of the trained weights, and does not affect
training. An average is a function that updates averaged weights after every step. A new file in
this folder is discovered automatically; a study sets a custom average with
`training.average.kind = "ideas.py:my_average"`.

Axes: R replicas, N parameters in one replica.
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
    """Arguments of an averaging function.

    Attributes:
        weights: [R, N] trained weights.
        kept: [R, N] averaged weights, to update in place; zero before the first call.
        done: Number of completed steps.
        options: Options of the average.
    """

    weights: Tensor
    kept: Tensor
    done: int
    options: Any


class Average(Decorated):
    """Decorator that declares a function as a weight average, `@average("name")`.

    The function is called with a `Taken` after every step, and updates `Taken.kept` in place.
    """


average = Average


def find_average(spec: setting.Average, weights: Rows, folder: Path | None) -> Averaging | None:
    """Return the weight average specified by the study, or None for `kind = "none"`."""
    if spec.kind == NONE:
        read_options(Options, spec.options, f"{KEY}.options", NONE)
        return None
    declared = find_declared(spec.kind, Average, f"{KEY}.kind", PACKAGE, folder or Path.cwd())
    options = read_options(declared.options, spec.options, f"{KEY}.options", declared.name)
    return Averaging(declared, options, weights)


class Averaging:
    """Running average of the weights of all replicas.

    Attributes:
        kept: Averaged weights, {parameter name: [R, ...]}.
    """

    def __init__(self, average: Average, options: Options, weights: Rows) -> None:
        self._average, self._options = average, options
        self.kept = weights.like(torch.zeros_like(weights.flat))

    @torch.no_grad()
    def take(self, done: int, weights: Rows) -> None:
        """Update the average with the weights after `done` steps."""
        self._average.function(Taken(weights.flat, self.kept.flat, done, self._options))
