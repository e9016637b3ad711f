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

from paribus.errors import ParibusError
from paribus.evaluation.measures import Measure, all_measures
from paribus.evaluation.predictions import Predictions
from paribus.evaluation.text_parts import Row
from paribus.study.importing import load_own

if TYPE_CHECKING:
    from paribus.evaluation.heldout import Evaluation

# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


@dataclass(frozen=True)
class OwnMeasure:
    """A measure by the user, whose failures are caught.

    Attributes:
        strict: whether a measure that fails is an error, or has no rows.
    """

    measure: Measure
    strict: bool

    def added(
        self, sums: np.ndarray | Exception | None, chunk: Predictions
    ) -> np.ndarray | Exception:
        """As `Measure.added`; what it raised stays, where it is not an error."""
        if isinstance(sums, Exception):
            return sums
        try:
            return self.measure.added(sums, chunk)
        except Exception as error:
            return self._failed(error)

    def rows(self, sums: np.ndarray | Exception | None, seq_len: int, is_finite: bool) -> list[Row]:
        """Its rows, if these are of the parts that it declares.

        `is_finite` says whether the model's own numbers are: then NaN is the measure's mistake.
        """
        if sums is None or isinstance(sums, Exception):
            return []
        try:
            return _checked(self.measure, self.measure.rows(sums, seq_len), seq_len, is_finite)
        except Exception as error:
            self._failed(error)
            return []

    def _failed(self, error: Exception) -> Exception:
        if self.strict:
            raise ParibusError(
                f"measure '{self.measure.name}' failed: {type(error).__name__}: {error}; mend it, "
                "or take it out of evaluation.own"
            ) from error
        return error


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
        raise TypeError("its finish must give a list of paribus.evaluation.Row")
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
