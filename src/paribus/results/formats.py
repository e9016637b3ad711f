"""The formats of records: canonical JSON, and Parquet with units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paribus import untrusted_io
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.results.record_format import known_records
from paribus.results.records import RECORDS, Model, as_model, require
from paribus.schema import KEY, SCHEMA, stamped, unstamped
from paribus.study import Study

GROUP_ROWS = 1_000_000  # of a table that is written in turn, at least


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
    for table in _groups(tables):
        number = {KEY: str(SCHEMA)}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **number})
        # Distinct values are listed of all but measured numbers, whose list is as long as the
        # column, and is read before it.
        repeating: Any = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
        writer = writer or pq.ParquetWriter(
            sink, table.schema, compression="zstd", use_dictionary=repeating
        )
        writer.write_table(table)
    assert writer is not None  # somebody has asked for a table
    writer.close()
    write_bytes(path, sink.getvalue().to_pybytes())


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in fewer tables, each with a row group's rows or more."""
    waiting: list[pa.Table] = []
    for table in tables:
        if sum(map(len, waiting)) >= GROUP_ROWS:
            yield joined(waiting)
            waiting = []
        waiting.append(table)
    yield joined(waiting)


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of all trials. Raises ParibusError where trials have other columns."""
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables).unify_dictionaries()
    except pa.ArrowException as error:
        raise ParibusError(
            f"the same record of two trials has other columns ({error}); `paribus verify` finds "
            "what was changed",
            code="changed",
        ) from None


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
