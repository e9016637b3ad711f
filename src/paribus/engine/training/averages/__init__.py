"""Averages of weights along the run: one file each, declared with `@average`.

The average is evaluated, kept and exported instead of the trained weights; training does not see
it. An average has a function that adds the weights after a step to its memory, and one that returns
the average. A new file in this folder is found by its name; a study names a custom average as
`training.average.kind = "ideas.py:my_average"`.

Axes: R replicas, N parameters of one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """Arguments of an average after `done` of `steps` steps.

    Attributes:
        weights: [R, N] trained weights.
        kept: One [R, N] per declared copy; zero before the first step.
        done: Steps done, on the host.
        steps: Steps of the run.
        options: Options of the average.
    """

    weights: Tensor
    kept: Sequence[Tensor]
    done: int
    steps: int
    options: Any


@dataclass(frozen=True, kw_only=True)
class Average(Decorated):
    """Declares a function as an average of weights: `@average("name", give=...)`.

    The function is called after every step and writes to `kept` in place.

    Attributes:
        give: Returns the average; None before there is one, to evaluate the trained weights.
        copies: options -> number of copies of the weights that it keeps.
    """

    give: Callable[[Taken], Tensor | None]
    copies: Callable[[Any], int] = lambda options: 1


average = Average


def find_average(
    spec: setting.Average, steps: int, weights: Rows, folder: Path | None
) -> Averaging | None:
    """Return the average that a study names, for a run of `steps` steps; None for no average."""
    if spec.kind == NONE:
        read_options(Options, spec.options, f"{KEY}.options", NONE)
        return None
    declared = find_declared(spec.kind, Average, f"{KEY}.kind", PACKAGE, folder or Path.cwd())
    options = read_options(declared.options, spec.options, f"{KEY}.options", declared.name)
    return Averaging(declared, options, steps, weights)


class Averaging:
    """The average of a stack's weights.

    Attributes:
        kept: {name in checkpoints: rows like the weights}.
    """

    def __init__(self, average: Average, options: Options, steps: int, weights: Rows) -> None:
        self._average, self._options, self._steps = average, options, steps
        # The hyphen keeps these apart from the slots of optimizers, which are identifiers.
        self.kept = {
            f"average-{i}": weights.like(torch.zeros_like(weights.flat))
            for i in range(average.copies(options))
        }

    @torch.no_grad()
    def take(self, done: int, weights: Rows) -> None:
        """Add the weights after this many steps."""
        self._average.function(self._taken(done, weights))

    @torch.no_grad()
    def evaluated(self, done: int, weights: Rows) -> Rows:
        """Return the weights to evaluate after `done` steps."""
        mean = self._average.give(self._taken(done, weights)) if done else None
        if mean is None:
            return weights
        return weights.like(mean)

    def _taken(self, done: int, weights: Rows) -> Taken:
        kept = [rows.flat for rows in self.kept.values()]
        return Taken(weights.flat, kept, done, self._steps, self._options)
