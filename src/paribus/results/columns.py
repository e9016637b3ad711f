"""Tables of a folder as columns: written with their units, read back only if they are ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paribus.errors import ParibusError
from paribus.results.formats import column, write_table
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, TABLE_MEMORY, TABLE_ROWS, open_regular

SMALL_BYTES = 1 << 20  # a file of at most so many is read at once

# Columns that a reader relies on, by file name.
COLUMNS: dict[str, tuple[str, ...]] = {
    "steps.parquet": ("step", "train_loss"),
    "probes.parquet": ("step",),
    "curve.parquet": ("step", "loss_sum_nats", "predicted"),
    "evaluation.parquet": ("measure", "part", "value", "total", "count", "unit"),
    "blocks.parquet": ("loss_sum_nats", "brier_sum", "correct", "predicted", "characters"),
    "item_scores.parquet": ("item", "count"),
    "series.parquet": ("metric", "step", "value"),
    "tasks.parquet": ("task", "shots", "items", "correct", "accuracy"),
    "items.parquet": ("task", "shots", "item", "correct"),
    "throughput.parquet": ("arm", "seed", "kind", "tokens", "seconds", "bytes"),
}


def not_what_was_written(path: Path, why: object) -> ParibusError:
    """Return the error for a record that is not one of ours."""
    return ParibusError(
        f"{path} is not what was written there: {why}; restore it, or delete it and run again",
        code="changed",
    )


@dataclass(frozen=True)
class Folder:
    """Tables in a folder at `path`."""

    path: Path

    def write_columns(
        self,
        name: str,
        columns: Mapping[str, np.ndarray],
        units: Mapping[str, str],
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Write a Parquet file of columns of equal length; NaN is written as absent (null).

        The `units` of columns, and further `labels` of some of them, are metadata of its schema.
        """
        arrays = {key: column(values) for key, values in columns.items()}
        fields = [
            pa.field(key, array.type, metadata={"unit": units[key], **(labels or {}).get(key, {})})
            for key, array in arrays.items()
        ]
        write_table(self.path / name, pa.table(list(arrays.values()), schema=pa.schema(fields)))

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Those of `columns` that the file has; all by default."""
        path = self.path / name
        with open_regular(path, TABLE_BYTES) as handle:
            try:
                # Of thousands of small files, each asked for piece by piece and by several threads,
                # most of the time would go into asking.
                is_small = os.fstat(handle.fileno()).st_size <= SMALL_BYTES
                source = pa.BufferReader(handle.read()) if is_small else handle
                file = pq.ParquetFile(source, pre_buffer=not is_small)
                names = file.schema_arrow.names
                if why := _flaw(path.name, file.metadata, names):
                    raise not_what_was_written(path, why)
                wanted = columns and [column for column in columns if column in names]
                return file.read(wanted, use_threads=not is_small)
            except (pa.ArrowException, OSError, MemoryError) as error:
                raise not_what_was_written(path, error) from None


def _flaw(name: str, footer: pq.FileMetaData, names: list[str]) -> str:
    """Say where a table, by its own footer, is larger in memory than any of ours, or lacks a
    column; empty where it does not.

    A file of a few megabytes may hold gigabytes of one value.
    """
    encoded = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
    rows, width = footer.num_rows, footer.num_columns
    size = max(encoded, 8 * rows * width)  # equal values take no room there
    if rows > TABLE_ROWS or size > TABLE_MEMORY or width > TABLE_COLUMNS:
        return (
            f"it has {rows:,} rows, {width:,} columns and {size:,} bytes of values, and may have "
            f"{TABLE_ROWS:,}, {TABLE_COLUMNS:,} and {TABLE_MEMORY:,}"
        )
    lacking = [column for column in COLUMNS.get(name, ()) if column not in names]
    return f"it has no column {', '.join(lacking)}" if lacking else ""
