"""The user's own held-out measures, by import path: loaded, called and checked.

A measure that fails in the dry run stops the study before training. One that fails on a trained
model costs its own numbers, never the trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from paribus.errors import ParibusError
from paribus.evaluation.heldout import Evaluation
from paribus.evaluation.measures import Measure, all_measures
from paribus.evaluation.predictions import Predictions
from paribus.evaluation.text_parts import Row
from paribus.study.importing import load_own

# What else the scores of a trial are called.
TAKEN = ("loss_sum_nats", "correct", "predicted")


def own_measures(paths: Iterable[str], folder: Path, *, strict: bool = True) -> tuple[Measure, ...]:
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
        own.append(_guarded(measure, strict))
    return tuple(own)


def require_equal(own: Sequence[Measure], first: Evaluation, again: Evaluation) -> None:
    """Raise ParibusError where an own measure gave other numbers for the same predictions."""
    for measure in own:
        rows = [
            [(r.part, repr(r.value)) for r in of.rows if r.measure == measure.name]
            for of in (first, again)
        ]
        if rows[0] != rows[1]:
            raise ParibusError(
                f"measure '{measure.name}' gives other numbers when it is called again: it draws "
                "random numbers, or keeps something between calls"
            )


def _guarded(measure: Measure, strict: bool) -> Measure:
    def compute(predictions: Predictions) -> list[Row]:
        try:
            return _checked(measure, predictions)
        except Exception as error:
            if not strict:
                return []
            raise ParibusError(
                f"measure '{measure.name}' failed: {type(error).__name__}: {error}; mend it, or "
                "take it out of evaluation.own"
            ) from error

    return replace(measure, compute=compute)


def _checked(measure: Measure, predictions: Predictions) -> list[Row]:
    """What a measure gave, if these are rows of the parts that it declares."""
    found: object = measure.compute(predictions)
    if isinstance(found, int | float) and not isinstance(found, bool):
        found = [Row("all", float(found))]  # a single number is one of the whole text
    if not isinstance(found, list) or not all(isinstance(row, Row) for row in found):
        raise TypeError("it must give a number, or a list of paribus.evaluation.Row")
    known, rows = measure.part_names(predictions.seq_len), {}
    for row in found:
        if row.part not in known:
            raise ValueError(f"it gave a part '{row.part}' that it does not declare")
        if row.part in rows:
            raise ValueError(f"it gave the part '{row.part}' twice")
        total = None if row.total is None else float(row.total)
        count = None if row.count is None else int(row.count)
        rows[row.part] = Row(row.part, float(row.value), total, count)
    if any(math.isnan(row.value) for row in rows.values()) and not _is_broken(predictions):
        raise ValueError("it gave NaN; leave out a part of which nothing can be said")
    return list(rows.values())


def _is_broken(predictions: Predictions) -> bool:
    """Whether the model itself gives numbers that are not finite."""
    return not math.isfinite(float(predictions.loss_nats.sum(dtype="float64")))


def _is_measure(value: object) -> bool:
    return isinstance(value, Measure)
