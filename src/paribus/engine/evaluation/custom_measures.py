"""The user's own held-out measures, by import path: loaded, called and checked.

A measure that fails in the dry run stops the study before training. One that fails on a trained
model costs its own numbers, never the trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paribus.drawing import Drawing
from paribus.engine.evaluation.measures import Measure, all_measures
from paribus.engine.evaluation.predictions import Predictions
from paribus.engine.evaluation.text_parts import Row
from paribus.errors import ParibusError
from paribus.metric import ItemSums
from paribus.study.importing import load_own

if TYPE_CHECKING:
    from paribus.engine.evaluation.heldout import Evaluation

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
        """As `Measure.drawn`; none where it fails and that is no error."""
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
    """What an own measure gives of a text; nothing more once it has failed."""

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
    """The measures at these import paths; files start at `folder`.

    `strict` says whether a measure that fails is an error, or has no rows. Raises ParibusError for
    a path that names no measure, and for a name that is taken.
    """
    found = {measure.name: measure for measure in all_measures()}
    own = []
    for path in paths:
        where = f"evaluation.own = '{path}'"
        measure = load_own(path, where, "measure", _is_measure, folder)
        if measure.name in found or measure.name in TAKEN or "/" in measure.name:
            rule = "a name has no '/'" if "/" in measure.name else "it is there already"
            raise ParibusError(
                f"{where}: a measure cannot be named '{measure.name}': {rule}; give it another name"
            )
        found[measure.name] = measure
        own.append(OwnMeasure(measure, strict))
    return tuple(own)


def require_equal(own: Sequence[OwnMeasure], first: Evaluation, again: Evaluation) -> None:
    """Raise ParibusError where an own measure gave other numbers for the same predictions."""
    for measure in (one.measure for one in own):
        rows = [
            [(r.part, repr(r.value)) for r in of.rows if r.measure == measure.name]
            for of in (first, again)
        ]
        if rows[0] != rows[1]:
            raise ParibusError(
                f"measure '{measure.name}' gives other numbers when it is called again: it draws "
                "random numbers, or keeps something between calls"
            )


def _checked(measure: Measure, found: Any, seq_len: int, is_finite: bool) -> list[Row]:
    """What a measure gave, if these are rows of the parts that it declares."""
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


def _is_measure(value: object) -> bool:
    return isinstance(value, Measure)
