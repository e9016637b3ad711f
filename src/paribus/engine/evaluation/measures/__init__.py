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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paribus.declared import declared
from paribus.drawing import PART, Drawing
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import Parts, Row, whole
from paribus.errors import ParibusError
from paribus.metric import Better, Items, ItemSums, Metric, readable
from paribus.study.choices import require_new_name
from paribus.study.importing import load_own

if TYPE_CHECKING:
    from paribus.engine.evaluation.heldout import Evaluation as Evaluation


# What a chunk gives: an array of one shape for every chunk of a text, or what NumPy makes one of.
Sum = Callable[[Predictions], Any]
# What a chunk gives by token: a total and a count for each, [N] and [N].
ByToken = Callable[[Predictions], tuple[Any, Any]]
# (the sums of a text, seq_len) -> its rows
Finish = Callable[[np.ndarray, int], list[Row]]
NUMBERED = re.compile(r"(?P<before>.*?)-?\d+(\.\d+)?")  # a part that is called after a number


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
        by_token: what its own columns of blocks add up; None where it has none.
        of_tokens: whether it is about single tokens: not comparable between tokenizers.
        parts: the families of parts that its rows belong to, in their order.
        sum: from a chunk to its sums, numbers that add up to those of the text: [parts, 2], the
            total and the count of every part, unless there is a `finish`.
        finish: from the sums of a text to its rows; None for totals over counts. Parts of no tokens
            are left out.
        drawings: how it is drawn, columns without its name; None for a figure of each family.
    """

    name: str
    unit: str
    source: str
    parts: tuple[Parts, ...]
    sum: Sum
    finish: Finish | None
    better: Better
    label: str
    digits: int
    items: Items
    uniform: str
    of_tokens: bool = True
    by_token: ByToken | None = None
    drawings: tuple[Drawing, ...] | None = None

    def drawn(self, seq_len: int) -> tuple[Drawing, ...]:
        """Its drawings, declared or not, with the full names of their columns."""
        drawings = self._default_drawings(seq_len) if self.drawings is None else self.drawings
        return tuple(drawing.of(self.name) for drawing in drawings)

    def _default_drawings(self, seq_len: int) -> tuple[Drawing, ...]:
        """Return a figure for each family of parts: by their numbers where they have some."""
        title, axis = self.label[0].upper() + self.label[1:], self.metric.title
        found = []
        for family in self.parts:
            names = family(seq_len)
            numbered = [NUMBERED.fullmatch(name) for name in names]
            before = {match["before"] for match in numbered if match}
            if len(names) > 1 and all(numbered) and len(before) == 1:
                across = before.pop()
                what = across.strip(" =")
                column, about = f"{across}{PART}", f"{title} by {what}" if what else title
                found.append(Drawing(column, "curve", about, axis, "evaluation", across=what))
            elif names != ("all",) or len(self.parts) == 1:
                found.append(Drawing(PART, "parts", title, axis, "evaluation", parts=names))
        return tuple(found)

    @property
    def metric(self) -> Metric:
        """The metric of the whole text; `Metric.part` for the others."""
        about = (self.name, self.label, self.unit, self.better)
        shown = {"digits": self.digits, "items": self.items, "uniform": self.uniform}
        return Metric(*about, "evaluation", of_tokens=self.of_tokens, **shown)

    def part_names(self, seq_len: int) -> tuple[str, ...]:
        """Return every part that there can be, in the order of the rows."""
        return tuple(name for family in self.parts for name in family(seq_len))

    def added(self, sums: np.ndarray | None, chunk: Predictions) -> np.ndarray:
        """Return `sums` of the chunks so far, None before the first, and of `chunk`; float64."""
        given = self.sum(chunk)
        try:
            found = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise TypeError(
                f"it gave a {type(given).__name__}, and not numbers that add up: the total and the "
                "count of every part"
            ) from None
        if sums is None:
            return found
        if found.shape != sums.shape:
            raise ValueError(f"it gave sums of shape {found.shape} after {sums.shape}")
        return sums + found

    def by_block(
        self, sums: np.ndarray | None, chunk: Predictions, block: np.ndarray, n_blocks: int
    ) -> np.ndarray | None:
        """Return [2, blocks] totals and counts of the chunks so far and of `chunk`.

        Its tokens are in `block` [N]. None for a measure without columns of its own.
        """
        if self.by_token is None:
            return None
        found = [np.asarray(values, np.float64) for values in self.by_token(chunk)]
        if [values.shape for values in found] != [(len(chunk),)] * 2:
            raise ValueError("its items must give a total and a count for each token")
        added = np.stack([np.bincount(block, values, minlength=n_blocks) for values in found])
        return added if sums is None else sums + added

    def rows(self, sums: np.ndarray, seq_len: int) -> list[Row]:
        """Return the rows of a text that came to `sums`."""
        if self.finish is not None:
            return self.finish(sums, seq_len)
        names = self.part_names(seq_len)
        if sums.size != 2 * len(names):
            raise ValueError(f"it gave sums of shape {sums.shape}, not a total and a count by part")
        pairs = zip(names, sums.reshape(-1, 2).tolist(), strict=True)
        return [Row.ratio(name, total, int(count)) for name, (total, count) in pairs if count > 0]

    def measured(self, chunks: Iterable[Predictions], seq_len: int) -> list[Row]:
        """Return the rows of a text in `chunks`."""
        sums = None
        for chunk in chunks:
            sums = self.added(sums, chunk)
        return [] if sums is None else self.rows(sums, seq_len)


def measure(
    name: str,
    *,
    unit: str,
    source: str = "",
    parts: tuple[Parts, ...] = (whole,),
    better: Better = "neither",
    label: str = "",
    digits: int = 4,
    items: ItemSums | ByToken | None = None,
    uniform: str = "",
    of_tokens: bool = True,
    finish: Finish | None = None,
    drawings: tuple[Drawing, ...] | None = None,
) -> Callable[[Sum], Measure]:
    """Make the decorated function the measure `name`; see `Measure` for what is declared.

    `items` lets claims about it be about new text: what it is a ratio of by item, in columns that
    every trial has (`engine.evaluation.blocks.SUMS`), or a function from a chunk to a total and a
    count for each of its tokens, [N] and [N], whose sums give the measure's value.
    """
    called = label or readable(name)
    by_token = items if callable(items) else None
    ratio = ItemSums(f"{name}/total", f"{name}/count") if callable(items) else items or ""

    def declare(sum: Sum) -> Measure:  # noqa: A002 - what it is
        shown = (better, called, digits, ratio, uniform, of_tokens, by_token, drawings)
        declared = Measure(name, unit, source, parts, sum, finish, *shown)
        _ = declared.metric  # raises where it cannot be one
        return declared

    return declare


@cache
def all_measures() -> tuple[Measure, ...]:
    """Return every measure of this folder, by file and then by its place in the file."""
    return tuple(declared(__name__, Measure).values())


# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")
ITEMS_ROUNDING = 1e-5  # sums in float32 beside sums in float64


@dataclass(frozen=True)
class OwnMeasure:
    """A measure by the user, whose failures are caught.

    Attributes:
        strict: whether a measure that fails is an error, or has no rows.
    """

    measure: Measure
    strict: bool

    def drawn(self, seq_len: int) -> tuple[Drawing, ...]:
        """Return those of the measure; none where it fails and that is no error."""
        try:
            return self.measure.drawn(seq_len)
        except Exception as error:
            self.require(error)
            return ()

    def require(self, error: Exception) -> None:
        """Raise ParibusError of what it raised, where that is an error."""
        if self.strict:
            raise ParibusError(
                f"measure '{self.measure.name}' failed: {type(error).__name__}: {error}; mend it, "
                "or take it out of evaluation.own"
            ) from error


class OwnSums:
    """Sums of an own measure over a text; nothing more once it has failed."""

    def __init__(self, of: OwnMeasure, n_blocks: int) -> None:
        self.of = of
        self._n_blocks = n_blocks
        self._sums: np.ndarray | None = None
        self._blocks: np.ndarray | None = None
        self._failed = False

    def add(self, chunk: Predictions, block: np.ndarray) -> None:
        """Add the next chunk, whose tokens are in `block` [N]; see `Measure.added`."""
        if self._failed:
            return
        measure = self.of.measure
        try:
            self._sums = measure.added(self._sums, chunk)
            self._blocks = measure.by_block(self._blocks, chunk, block, self._n_blocks)
        except Exception as error:
            self._failed = True
            self.of.require(error)

    def finish(self, seq_len: int, is_finite: bool) -> tuple[list[Row], dict[str, np.ndarray]]:
        """Its rows, if these are of the parts that it declares, and its columns of blocks.

        `is_finite` says whether the model's own numbers are: then NaN is the measure's mistake.
        """
        measure, blocks = self.of.measure, np.full((2, self._n_blocks), math.nan)
        rows: list[Row] = []
        if self._sums is not None and not self._failed:
            try:
                found = _checked(measure, measure.rows(self._sums, seq_len), seq_len, is_finite)
                if self._blocks is not None:
                    _require_sums(found, *self._blocks.sum(axis=1).tolist())
                    blocks = self._blocks
                rows = found
            except Exception as error:
                self.of.require(error)
        items = measure.metric.items
        if measure.by_token is None or not isinstance(items, ItemSums):
            return rows, {}
        return rows, dict(zip((items.total, items.count), blocks, strict=True))


def _require_sums(rows: list[Row], total: float, count: float) -> None:
    """Raise ValueError where the sums over items are not those that a measure is a ratio of."""
    for value in (row.value for row in rows if row.part == "all"):
        if math.isfinite(value) and not math.isclose(
            value * count, total, rel_tol=ITEMS_ROUNDING, abs_tol=ITEMS_ROUNDING
        ):
            raise ValueError(f"its value is {value:.6g}, and its items give {total:g} / {count:g}")


def own_measures(
    paths: Iterable[str], folder: Path, *, strict: bool = True
) -> tuple[OwnMeasure, ...]:
    """Return the measures at these import paths; files start at `folder`.

    `strict` says whether a measure that fails is an error, or has no rows. Raises ParibusError for
    a path that names no measure, and for a name that is taken.
    """
    taken = {*TAKEN, *(measure.name for measure in all_measures())}
    own = []
    for path in paths:
        where = f"evaluation.own = '{path}'"
        measure = load_own(path, where, "measure", Measure, folder)
        require_new_name(where, "measure", measure.name, taken)
        taken.add(measure.name)
        own.append(OwnMeasure(measure, strict))
    return tuple(own)


def _checked(measure: Measure, found: Any, seq_len: int, is_finite: bool) -> list[Row]:
    """Return what a measure gave, if these are rows of the parts that it declares."""
    if not isinstance(found, list) or not all(isinstance(row, Row) for row in found):
        raise TypeError("its finish must give a list of paribus.engine.evaluation.Row")
    known, rows = measure.part_names(seq_len), {}
    for row in found:
        if row.part not in known:
            raise ValueError(f"it gave a part '{row.part}' that it does not declare")
        if row.part in rows:
            raise ValueError(f"it gave the part '{row.part}' twice")
        total = None if row.total is None else float(row.total)
        count = None if row.count is None else int(row.count)
        rows[row.part] = Row(row.part, float(row.value), total, count)
    if is_finite and any(math.isnan(row.value) for row in rows.values()):
        raise ValueError("it gave NaN; leave out a part of which nothing can be said")
    return list(rows.values())
