"""Held-out measures, one idea a file behind one decorator; or the user's own, by import path.

A measure is a pure function from `Predictions` to rows. It declares the unit of its values, the
families of parts that its rows are named by, and where its definition is from. A file put into this
folder is found by itself, and the contract tests run over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from paribus.declared import declared
from paribus.evaluation.predictions import Predictions
from paribus.evaluation.text_parts import Parts, Row, whole
from paribus.metric import Better, Metric, readable


@dataclass(frozen=True)
class Measure:
    """A measure and what it declares.

    Attributes:
        name: what its rows and, for the part "all", the trial's score are called.
        unit: of its values; empty where they have none.
        source: where the definition is from.
        better: which direction is an improvement, if any.
        label, digits: what readers are shown.
        items, uniform: as `paribus.metric.Metric` has them.
        parts: the families of parts that its rows belong to, in their order.
        compute: from predictions to rows; parts of no tokens are left out.
    """

    name: str
    unit: str
    source: str
    parts: tuple[Parts, ...]
    compute: Callable[[Predictions], list[Row]]
    better: Better
    label: str
    digits: int
    items: str
    uniform: str

    @property
    def metric(self) -> Metric:
        """What it declares, for the whole text; `Metric.part` for the others."""
        about = (self.name, self.label, self.unit, self.better)
        return Metric(
            *about, "evaluation", digits=self.digits, items=self.items, uniform=self.uniform
        )

    def part_names(self, seq_len: int) -> tuple[str, ...]:
        """Every part that there can be, in the order of the rows."""
        return tuple(name for family in self.parts for name in family(seq_len))


def measure(
    name: str,
    *,
    unit: str,
    source: str = "",
    parts: tuple[Parts, ...] = (whole,),
    better: Better = "neither",
    label: str = "",
    digits: int = 4,
    items: str = "",
    uniform: str = "",
) -> Callable[[Callable[[Predictions], list[Row]]], Measure]:
    """Make the decorated function the measure `name`; see `Measure` for what is declared."""
    called = label or readable(name)

    def declare(compute: Callable[[Predictions], list[Row]]) -> Measure:
        shown = (better, called, digits, items, uniform)
        declared = Measure(name, unit, source, parts, compute, *shown)
        _ = declared.metric  # raises where it cannot be one
        return declared

    return declare


@cache
def all_measures() -> tuple[Measure, ...]:
    """Every measure of this folder, by file and then by its place in the file."""
    return tuple(declared(__name__, Measure).values())
