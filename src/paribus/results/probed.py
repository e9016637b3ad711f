"""What the probes of one trial measured, as one matrix: hundreds of columns, read once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from paribus.errors import ParibusError
from paribus.results.tidy import last_row
from paribus.results.trial_folder import TrialFolder

FILE = "probes.parquet"
LABELS = ("probe", "part", "statistic", "unit")


@dataclass(frozen=True)
class Columns:
    """The columns of probes.parquet but `step`: trials of one model share them.

    Attributes:
        schema: their names, types and labels.
    """

    schema: pa.Schema

    @cached_property
    def at(self) -> dict[str, int]:
        """The place of each column by its name."""
        return {name: i for i, name in enumerate(self.schema.names)}

    @cached_property
    def labels(self) -> dict[str, tuple[np.ndarray, pa.Array]]:
        """Of each label the code of every column, and the words that codes stand for."""
        found = {}
        about = [_labels(field) for field in self.schema]
        for name in LABELS:
            words = {one[name]: None for one in about}
            place = {word: i for i, word in enumerate(words)}
            codes = np.array([place[one[name]] for one in about], np.int32)
            found[name] = codes, pa.array(list(words), pa.string())
        return found


@dataclass(frozen=True)
class Probed:
    """The measurements of one trial.

    Attributes:
        step: [n] at which something was measured.
        values: [n, C] NaN where a column was not due.
    """

    columns: Columns
    step: np.ndarray
    values: np.ndarray

    def column(self, name: str) -> np.ndarray | None:
        """[n] one column; None where the trial lacks it."""
        at = self.columns.at.get(name)
        return None if at is None else self.values[:, at]

    def last(self, names: Iterable[str]) -> dict[str, float]:
        """Return the last row of those of `names` that the trial has; NaN where one was not due."""
        if not len(self.step):
            return {}
        row = self.values[-1]
        return {
            name: float(row[at]) for name in names if (at := self.columns.at.get(name)) is not None
        }

    @property
    def tidy(self) -> pa.Table:
        """A row for each value: step, probe, part, statistic, value, unit; column by column."""
        there = ~np.isnan(self.values).T  # [C, n]
        counts = there.sum(axis=1)
        steps = np.broadcast_to(self.step, there.shape)[there]
        words = {
            name: pa.DictionaryArray.from_arrays(np.repeat(codes, counts), distinct)
            for name, (codes, distinct) in self.columns.labels.items()
        }
        values = pa.array(self.values.T[there], pa.float32())
        first = {"step": pa.array(steps, pa.int32())}
        unit = words.pop("unit")
        return pa.table(first | words | {"value": values, "unit": unit})


def read_probed(folder: TrialFolder, known: list[Columns]) -> Probed:
    """Return what the probes of a finished trial measured; nothing where that was not kept.

    `known` are the columns of trials that were read before; others are added to it. Raises
    ParibusError where a column holds no numbers.
    """
    if not folder.has(FILE):
        return Probed(Columns(pa.schema([])), np.empty(0, np.int32), np.empty((0, 0), np.float32))
    table = folder.read_columns(FILE)
    step = table["step"].to_numpy()
    table = table.drop_columns(["step"])
    schema = table.schema
    columns = next((one for one in known if one.schema.equals(schema, check_metadata=True)), None)
    if columns is None:
        lacking = next((f.name for f in schema if not set(LABELS) <= _labels(f).keys()), None)
        if lacking is not None:
            raise _refused(folder, f"its column '{lacking}' has no labels")
        columns = Columns(schema)
        known.append(columns)
    if not table.num_columns or not len(table):
        return Probed(columns, step, np.empty((len(table), table.num_columns), np.float32))
    try:
        (batch,) = table.combine_chunks().to_batches()
        values = batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()
    except (pa.ArrowException, TypeError) as error:
        raise _refused(folder, f"it holds what are no numbers ({error})") from None
    return Probed(columns, step, values)


def read_last(folder: TrialFolder, names: list[str]) -> dict[str, float]:
    """`Probed.last` of a finished trial, without reading its hundreds of other columns."""
    if not folder.has(FILE):
        return {}
    row = last_row(folder.read_columns(FILE, names))
    return {name: math.nan if value is None else float(value) for name, value in row.items()}


def _labels(field: pa.Field) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}


def _refused(folder: TrialFolder, why: str) -> ParibusError:
    return ParibusError(
        f"{folder.path / FILE} is not what was written there: {why}; restore it, or delete "
        f"{folder.path} and run again"
    )
