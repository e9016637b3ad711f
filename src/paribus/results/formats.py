"""The formats of records: canonical JSON, and Parquet with units."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paribus import untrusted_io
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.results.records import RECORDS, Model, as_model, known_records, require
from paribus.schema import KEY, SCHEMA, stamped, unstamped
from paribus.study import Study
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, TABLE_MEMORY, TABLE_ROWS, open_regular


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a record: canonical JSON (equal values give equal bytes) with the number of its
    schema."""
    write_plain_json(path, stamped(value))


def write_plain_json(path: Path, value: Any, *, sort_keys: bool = True) -> None:
    """Canonical JSON without that number, of files whose form is not ours to say."""
    write_bytes(path, canonical_json(value, sort_keys=sort_keys).encode())


def write_study(path: Path, study: Study) -> None:
    """Write study.json, with the arms in the order of the study."""
    write_plain_json(path, stamped(study.model_dump(mode="json")), sort_keys=False)


def write_table(path: Path, table: pa.Table) -> None:
    """Parquet, with the units that the schema's fields carry."""
    write_tables_in_turn(path, [table])


def write_tables_in_turn(path: Path, tables: Iterable[pa.Table]) -> None:
    """One Parquet file of several tables of the same columns, never all of them in memory."""
    sink, writer = pa.BufferOutputStream(), None
    for table in tables:
        number = {KEY: str(SCHEMA)}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **number})
        # Distinct values are listed of all but measured numbers, whose list is as long as the
        # column, and is read before it.
        repeating: Any = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
        writer = writer or pq.ParquetWriter(
            sink, table.schema, compression="zstd", use_dictionary=repeating
        )
        if table.schema != writer.schema:
            raise _other_columns(f"{table.column_names}, unlike {writer.schema.names}")
        writer.write_table(table)
    assert writer is not None  # somebody has asked for a table
    writer.close()
    write_bytes(path, sink.getvalue().to_pybytes())


def _other_columns(why: object) -> ParibusError:
    return ParibusError(
        f"the same record of two trials has other columns ({why}); `paribus verify` finds what "
        "was changed",
        code="changed",
    )


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of all trials. Raises ParibusError where trials have other columns."""
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables).unify_dictionaries()
    except pa.ArrowException as error:
        raise _other_columns(error) from None


def column(values: np.ndarray) -> pa.Array:
    """[n] numbers, of which NaN is absent (null), or words as a column.

    Made of buffers: `pyarrow.array` imports pandas wherever that is installed, which takes every
    worker half a second and its memory.
    """
    if values.dtype.kind == "U":
        encoded = [word.encode() for word in values.tolist()]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        return pa.StringArray.from_buffers(
            len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
        )
    present = values == values
    if values.dtype.kind not in "iuf":
        return pa.array(values, mask=~present)
    absent = len(values) - int(present.sum())
    valid = pa.py_buffer(np.packbits(present, bitorder="little")) if absent else None
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [valid, data], absent
    )


def read_json(path: Path) -> Any:
    """Return the value of a JSON record, checked against the model of its file name."""
    value = _read(path)
    # A trainer's own forms are loaded for files that no other has.
    require(path, value, RECORDS if path.name in RECORDS else known_records())
    return value


def read_as(model: type[Model], path: Path) -> Model:
    """Return a JSON file as the model of its record. Raises ParibusError."""
    return as_model(model, _read(path), path)


def _read(path: Path) -> Any:
    missing = f"{path} is missing; was the results folder moved in part?"
    return unstamped(untrusted_io.read_json(path, missing=missing), str(path))


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
        f"{path} was changed or damaged after it was written: {why}; restore it, or delete it and "
        "run again",
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
    """Return why a table cannot be read, such as a missing column; "" if it can.

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
