"""Held-out measures, behind one decorator; or the user's own, by import path.

A measure is a pure function from a chunk of `Predictions` to sums. The sums of all chunks are
added up, and rows are made of what they come to: by default, each part's total over its count. It
declares the unit of its values, the families of parts that its rows are named by, and where its
definition is from. A file put into this folder is found by itself, and the contract tests run over
it.

A measure of the user's own that fails in the dry run stops the study before training. One that
fails on a trained model costs its own numbers, never the trial."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paribus.declared import declared
from paribus.drawing import PART, Drawing
from paribus.engine.evaluation.blocks import Division
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import Parts, Row, whole
from paribus.errors import ParibusError
from paribus.metric import Better, ItemSums, Metric, readable
from paribus.study.choices import load_new

# What a chunk gives: an array of one shape for every chunk of a text, or what NumPy makes one of.
Sum = Callable[[Predictions], Any]
# What a chunk gives by token: a total and a count for each, [N] and [N].
ByToken = Callable[[Predictions], tuple[Any, Any]]
# (the sums of a text, seq_len) -> its rows
Finish = Callable[[np.ndarray, int], list[Row]]
ITEMS_ROUNDING = 1e-5  # sums in float32 beside sums in float64


@dataclass(frozen=True)
class Measure:
    """A measure and what it declares.

    Attributes:
        name: what its rows and, for the part "all", the trial's score are called.
        sum: from a chunk to its sums, numbers that add up to those of the text: [parts, 2], the
            total and the count of every part, unless there is a `finish`.
        unit: of its values; empty where they have none.
        source: where the definition is from.
        parts: the families of parts that its rows belong to, in their order.
        better: which direction is an improvement, if any.
        label, digits: what readers are shown.
        items: lets claims about it be about new text: what it is a ratio of by item, in columns
            that every trial has (`engine.evaluation.blocks.SUMS`), or a function from a chunk to a
            total and a count for each of its tokens, whose sums give the measure's value.
        uniform: as `paribus.metric.Metric` has it.
        of_tokens: whether it is about single tokens: not comparable between tokenizers.
        finish: from the sums of a text to its rows; None for totals over counts. Parts of no tokens
            are left out.
        drawings: how it is drawn, columns without its name; None for a figure of each family.
        strict: of the user's own, whether its failure is an error, or costs its rows alone; None
            for a measure that ships.
    """

    name: str
    sum: Sum
    unit: str
    source: str = ""
    parts: tuple[Parts, ...] = (whole,)
    better: Better = "neither"
    label: str = ""
    digits: int = 4
    items: ItemSums | ByToken | None = None
    uniform: str = ""
    of_tokens: bool = True
    finish: Finish | None = None
    drawings: tuple[Drawing, ...] | None = None
    strict: bool | None = None

    def __post_init__(self) -> None:
        _ = self.metric  # raises where it cannot be one

    @property
    def by_token(self) -> ByToken | None:
        """Columns that the measure sums by block; None without columns of its own."""
        return self.items if callable(self.items) else None

    def drawn(self, seq_len: int) -> tuple[Drawing, ...]:
        """Its drawings, declared or not, with the full names of their columns."""
        with self.failing():
            drawings = self._default_drawings(seq_len) if self.drawings is None else self.drawings
            return tuple(drawing.of(self.name) for drawing in drawings)
        return ()

    def _default_drawings(self, seq_len: int) -> tuple[Drawing, ...]:
        """Return a figure for each family of parts: by their numbers where they have some."""
        label, axis = self.metric.label, self.metric.title
        title = label[0].upper() + label[1:]
        drawings = []
        for family in self.parts:
            names = family(seq_len)
            before = {re.sub(r"-?\d+(\.\d+)?$", "", name) for name in names}
            if len(names) > 1 and len(before) == 1:
                across = before.pop()
                quantity = across.strip(" =")
                by = f"{title} by {quantity}" if quantity else title
                drawing = Drawing(
                    f"{across}{PART}", "curve", by, axis, "evaluation", across=quantity
                )
                drawings.append(drawing)
            elif names != ("all",) or len(self.parts) == 1:
                drawings.append(Drawing(PART, "parts", title, axis, "evaluation", parts=names))
        return tuple(drawings)

    @property
    def metric(self) -> Metric:
        """The metric of the whole text; `Metric.part` for the others."""
        shown = (self.name, self.label or readable(self.name), self.unit, self.better, "evaluation")
        own = ItemSums(f"{self.name}/total", f"{self.name}/count")
        items = own if callable(self.items) else self.items or ""
        uniform = {"uniform": self.uniform, "of_tokens": self.of_tokens}
        return Metric(*shown, digits=self.digits, items=items, **uniform)

    def part_names(self, seq_len: int) -> tuple[str, ...]:
        """Return every part that there can be, in the order of the rows."""
        return tuple(name for family in self.parts for name in family(seq_len))

    def rows(self, sums: np.ndarray, seq_len: int) -> list[Row]:
        """Return the rows of a text that came to `sums`."""
        if self.finish is not None:
            return self.finish(sums, seq_len)
        names = self.part_names(seq_len)
        if sums.size != 2 * len(names):
            raise ValueError(f"it gave sums of shape {sums.shape}, not a total and a count by part")
        pairs = zip(names, sums.reshape(-1, 2).tolist(), strict=True)
        return [Row.ratio(name, total, int(count)) for name, (total, count) in pairs if count > 0]

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Raise ParibusError where the measure fails inside, if that is an error.

        What ships raises what it raises, and never fails.
        """
        try:
            yield
        except Exception as error:
            if self.strict is None:
                raise
            if self.strict:
                raise ParibusError(
                    f"measure '{self.name}' failed: {type(error).__name__}: {error}; mend it, or "
                    "take it out of evaluation.own",
                    code="own_code",
                ) from error


class MeasureSums:
    """Sums of a measure over a text, and over its blocks; nothing more once it has failed."""

    def __init__(self, measure: Measure, division: Division) -> None:
        self.measure, self._division = measure, division
        self._sums: Any = 0.0
        self._blocks = np.zeros((2, division.n_blocks))  # totals and counts
        self._failed = False

    def add(self, chunk: Predictions) -> None:
        """Add the next chunk."""
        if self._failed:
            return
        self._failed = True
        with self.measure.failing():
            self._sums = self._sums + np.asarray(self.measure.sum(chunk), np.float64)
            if self.measure.by_token is not None:
                self._blocks += self._division.add(chunk.start + 1, *self.measure.by_token(chunk))
            self._failed = False

    def finish(self, seq_len: int, is_finite: bool) -> tuple[list[Row], dict[str, np.ndarray]]:
        """Its rows, if these are of the parts that it declares, and its own columns of blocks.

        `is_finite` says whether the model's own numbers are: then NaN is the measure's mistake.
        """
        rows, blocks = list[Row](), np.full_like(self._blocks, math.nan)
        if not self._failed:
            with self.measure.failing():
                rows = self._rows(seq_len, is_finite)
                blocks = self._blocks
        items = self.measure.metric.items
        if self.measure.by_token is None or not isinstance(items, ItemSums):
            return rows, {}
        return rows, {items.total: blocks[0], items.count: blocks[1]}

    def _rows(self, seq_len: int, is_finite: bool) -> list[Row]:
        measure, rows = self.measure, list[Row]()
        names = set(measure.part_names(seq_len))
        for row in measure.rows(self._sums, seq_len):
            value = float(row.value)
            if row.part not in names:
                raise ValueError(f"it gave a part '{row.part}' that it does not declare")
            if is_finite and math.isnan(value):
                raise ValueError("it gave NaN; leave out a part of which nothing can be said")
            if measure.by_token is not None and row.part == "all" and math.isfinite(value):
                total, count = self._blocks.sum(axis=1).tolist()
                if not math.isclose(
                    value * count, total, rel_tol=ITEMS_ROUNDING, abs_tol=ITEMS_ROUNDING
                ):
                    raise ValueError(
                        f"its value is {value:.6g}, and its items give {total:g} / {count:g}"
                    )
            rows.append(replace(row, value=value, measure=measure.name, unit=measure.unit))
        return rows


def measure(name: str, **declared: Any) -> Callable[[Sum], Measure]:
    """Make the decorated function the measure `name`; see `Measure` for what is declared."""
    return lambda function: Measure(name, function, **declared)


@cache
def all_measures() -> tuple[Measure, ...]:
    """Return every measure of this folder, by file and then by its place in the file."""
    return tuple(declared(__name__, Measure).values())


# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


def own_measures(paths: Iterable[str], folder: Path, *, strict: bool = True) -> tuple[Measure, ...]:
    """Return the measures at these import paths; files start at `folder`.

    `strict` says whether a measure that fails is an error, or has no rows. Raises ParibusError for
    a path that names no measure, and for a name that is taken.
    """
    taken = [*TAKEN, *(measure.name for measure in all_measures())]
    own = load_new(paths, "evaluation.own", "measure", Measure, folder, taken)
    return tuple(replace(measure, strict=strict) for measure in own)
