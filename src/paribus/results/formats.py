"""Readers and writers for records: canonical JSON, and Parquet tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, RootModel, ValidationError

from paribus import untrusted_io
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.files import file_digest, write_bytes
from paribus.schema import KEY, SCHEMA, stamped, unstamped
from paribus.study import Study
from paribus.untrusted_io import is_regular, regular_path

Model = TypeVar("Model", bound=BaseModel)

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


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a record as canonical JSON, in which equal values have equal bytes, with its schema."""
    write_plain_json(path, stamped(value))


def write_plain_json(path: Path, value: Any, *, sort_keys: bool = True) -> None:
    """Write a value as canonical JSON without a schema version."""
    write_bytes(path, canonical_json(value, sort_keys=sort_keys).encode())


def write_study(path: Path, study: Study) -> None:
    """Write study.json without sorting keys, to preserve the order of arms."""
    write_plain_json(path, stamped(study.model_dump(mode="json")), sort_keys=False)


def read_json(path: Path) -> Any:
    """Read a JSON record. Raises ParibusError for missing or invalid files or other schemas."""
    missing = f"{path} is missing; restore it, or copy the complete results folder again"
    return unstamped(untrusted_io.read_json(path, missing=missing), str(path))


def read_as(model: type[Model], path: Path) -> Model:
    """Read a JSON record and validate it as `model`. Raises ParibusError if it is invalid."""
    return as_model(model, read_json(path), path)


def as_model(model: type[Model], value: Any, path: Path) -> Model:
    """Validate the parsed content of the JSON file `path` as `model`.

    Raises ParibusError with the file, key and rule if the content is invalid.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise changed(path, f"{explain(error):.300}") from None


def read_seals(path: Path) -> dict[str, str]:
    """Read a manifest, and return its digests as {file name: SHA-256}."""
    return read_as(RootModel[dict[str, str]], path).root


def seal_problem(path: Path, digest: str) -> str:
    """Return why a file does not match its digest in the manifest, or "" if it matches."""
    if not is_regular(path):
        return f"{path.name} is missing"
    return "" if file_digest(path) == digest else f"{path.name} was changed after it was written"


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, including its metadata and a schema version."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: str(SCHEMA)})
    sink = pa.BufferOutputStream()
    import pyarrow.parquet

    # A dictionary of measured numbers would be as long as the column.
    repeating: Any = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
    pyarrow.parquet.write_table(table, sink, compression="zstd", use_dictionary=repeating)
    write_bytes(path, sink.getvalue().to_pybytes())


def changed(path: Path, why: object) -> ParibusError:
    """Return a ParibusError for a record that was changed or damaged."""
    return ParibusError(
        f"{path} was changed or damaged after it was written ({why}); restore it, or delete it and "
        "run again",
        code="changed",
    )


@dataclass(frozen=True)
class Folder:
    """A folder that contains Parquet tables."""

    path: Path

    def write_columns(
        self,
        name: str,
        columns: Mapping[str, np.ndarray],
        labels: Mapping[str, Mapping[str, str]] = {},
    ) -> None:
        """Write columns of equal length to a Parquet file, converting NaN to null.

        Args:
            name: name of the file.
            columns: 1-D arrays of values, keyed by column.
            labels: field metadata, keyed by column.
        """
        arrays = {key: column(values) for key, values in columns.items()}
        fields = [pa.field(k, array.type, metadata=labels.get(k)) for k, array in arrays.items()]
        write_table(self.path / name, pa.table(list(arrays.values()), schema=pa.schema(fields)))

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet file. Raises ParibusError if it is missing or damaged.

        Args:
            name: name of the file.
            columns: columns to read, ignoring absent ones; None reads all columns.
        """
        import pyarrow.parquet

        path = regular_path(self.path / name)
        try:
            with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
                names = file.schema_arrow.names
                table = file.read(columns and [name for name in columns if name in names])
        except (pa.ArrowException, OSError, MemoryError) as error:
            raise changed(self.path / name, error) from None
        if lacking := [column for column in COLUMNS.get(name, ()) if column not in names]:
            raise changed(self.path / name, f"missing columns: {', '.join(lacking)}")
        return table


def column(values: np.ndarray) -> pa.Array:
    """Convert an array [n] of numbers or strings to an Arrow array, with NaN as null.

    This avoids `pyarrow.array`, because that imports pandas and increases the memory use of every
    worker.
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
