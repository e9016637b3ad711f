"""Averages of weights along the run, one file each behind one decorator.

What is evaluated, kept and exported is then the average; training does not see it. An average is a
function that takes the weights after a step into what it keeps, and one that gives the average. A
new file in this folder is known by its name; a user's own is named in the study
(`training.average.kind = "ideas.py:my_average"`).

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
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Options, find_declared, read_options, require_declaration

__all__ = ["Average", "Averaging", "Options", "Taken", "average", "copies_of", "find_average"]

NONE = "none"
PACKAGE = "paribus.engine.training.averages"
WHERE = "training.average"
TAKEN = "it is called with a Taken: weights [R, N], kept, done, steps and options"


class Taken(NamedTuple):
    """What an average is made of, after `done` of `steps` steps.

    Attributes:
        weights: [R, N] as trained.
        kept: [R, N] each, of as many as it declares; zero before the first step.
        done, steps: of the run, on the host.
        options: as declared.
    """

    weights: Tensor
    kept: Sequence[Tensor]
    done: int
    steps: int
    options: Any


Take = Callable[[Taken], None]
Give = Callable[[Taken], Tensor | None]


@dataclass(frozen=True)
class Average:
    """An average of weights.

    Attributes:
        take: after every step; writes to `kept` in place.
        name: how studies call it.
        give: the average, or None while there is none yet: then the weights are evaluated.
        copies: options -> how many sets of weights it keeps.
        options: the class of its options.
        source: where it is from.
    """

    take: Take
    name: str
    give: Give
    copies: Callable[[Any], int]
    options: type[Options]
    source: str


def average(
    name: str,
    *,
    give: Give,
    copies: Callable[[Any], int] = lambda options: 1,
    options: type[Options] = Options,
    source: str = "",
) -> Callable[[Take], Average]:
    """Make a function that takes weights into what is kept an average; see `Average`."""
    require_declaration("average", name, options)

    def declare(take: Take) -> Average:
        return Average(take, name, give, copies, options, source)

    return declare


def find_average(spec: setting.Average, folder: Path | None) -> tuple[Average, Options] | None:
    """Return what `spec` means, with its options; None where nothing is averaged."""
    if spec.kind == NONE:
        read_options(Options, spec.options, f"{WHERE}.options", NONE)
        return None
    found = find_declared(spec.kind, Average, f"{WHERE}.kind", PACKAGE, folder or Path.cwd())
    return found, read_options(found.options, spec.options, f"{WHERE}.options", found.name)


def copies_of(spec: setting.Average, folder: Path | None) -> int:
    """Return how many sets of weights an average keeps. Raises ParibusError for no whole number."""
    found = find_average(spec, folder)
    return 0 if found is None else _copies(*found)


def _copies(one: Average, options: Options) -> int:
    with blamed(f"{WHERE}: copies of average '{one.name}' failed"):
        n = one.copies(options)
    if not isinstance(n, int) or n < 0:
        raise ParibusError(
            f"{WHERE}: average '{one.name}' keeps {n!r} copies of the weights; it must be a whole "
            "number from 0"
        )
    return n


class Averaging:
    """The average of a stack's weights.

    Attributes:
        kept: {name in checkpoints: rows like the weights}.
    """

    def __init__(self, found: tuple[Average, Options], steps: int, weights: Rows) -> None:
        self._average, self._options = found
        self._steps = steps
        n = _copies(*found)
        # With a hyphen, which no slot of an optimizer has.
        self.kept = {f"average-{i}": weights.like(torch.zeros_like(weights.flat)) for i in range(n)}

    def take(self, done: int, weights: Rows) -> None:
        """Take the weights after so many steps. Raises ParibusError."""
        self._called(self._average.take, done, weights)

    def given(self, done: int, weights: Rows) -> Rows:
        """Return what is evaluated after so many steps. Raises ParibusError."""
        given = self._called(self._average.give, done, weights) if done else None
        if given is None:
            return weights
        if not isinstance(given, Tensor) or given.shape != weights.flat.shape:
            found = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise ParibusError(
                f"{WHERE}: average '{self._average.name}' gives {found}, and must give a tensor "
                f"like its weights, {list(weights.flat.shape)}, or None"
            )
        return weights.like(given)

    @torch.no_grad()
    def _called(self, function: Callable[[Taken], Any], done: int, weights: Rows) -> Any:
        kept = [rows.flat for rows in self.kept.values()]
        at = Taken(weights.flat, kept, done, self._steps, self._options)
        with blamed(f"{WHERE}: average '{self._average.name}' failed after step {done}", TAKEN):
            return function(at)
