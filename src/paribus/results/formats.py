"""Reading and writing of records: canonical JSON, and Parquet with units."""

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
    """Write a record as canonical JSON with a schema number; equal values give equal bytes."""
    write_plain_json(path, stamped(value))


def write_plain_json(path: Path, value: Any, *, sort_keys: bool = True) -> None:
    """Write canonical JSON without a schema number, for files in a foreign format."""
    write_bytes(path, canonical_json(value, sort_keys=sort_keys).encode())


def write_study(path: Path, study: Study) -> None:
    """Write study.json, with the arms in the order of the study."""
    write_plain_json(path, stamped(study.model_dump(mode="json")), sort_keys=False)


def read_json(path: Path) -> Any:
    """Read a JSON record. Raises ParibusError if it is missing, damaged or of another schema."""
    missing = f"{path} is missing; restore it, or copy the whole results folder"
    return unstamped(untrusted_io.read_json(path, missing=missing), str(path))


def read_as(model: type[Model], path: Path) -> Model:
    """Read a JSON record and validate it as `model`. Raises ParibusError if it is invalid."""
    return as_model(model, read_json(path), path)


def as_model(model: type[Model], value: Any, path: Path) -> Model:
    """Validate a parsed JSON file as `model`.

    Raises ParibusError, which names the file, the key and the rule, if it is invalid.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise changed(path, f"{explain(error):.300}") from None


def read_seals(path: Path) -> dict[str, str]:
    """Return the digests in a manifest: {record name: SHA-256}."""
    return read_as(RootModel[dict[str, str]], path).root


def seal_problem(path: Path, digest: str) -> str:
    """Return why a record contradicts its sealed digest, or "" if it does not."""
    if not is_regular(path):
        return f"{path.name} is missing"
    return "" if file_digest(path) == digest else f"{path.name} was changed after it was written"


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, including the units in the metadata of its fields."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: str(SCHEMA)})
    sink = pa.BufferOutputStream()
    import pyarrow.parquet

    # A dictionary of measured numbers would be as long as the column.
    repeating: Any = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
    pyarrow.parquet.write_table(table, sink, compression="zstd", use_dictionary=repeating)
    write_bytes(path, sink.getvalue().to_pybytes())


def changed(path: Path, why: object) -> ParibusError:
    """Return the error for a record that was changed or damaged."""
    return ParibusError(
        f"{path} was changed or damaged after it was written ({why}); restore it, or delete it and "
        "run again",
        code="changed",
    )


@dataclass(frozen=True)
class Folder:
    """A folder of Parquet tables at `path`."""

    path: Path

    def write_columns(
        self,
        name: str,
        columns: Mapping[str, np.ndarray],
        units: Mapping[str, str],
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Write columns of equal length to a Parquet file, with NaN as null.

        Args:
            name: name of the file.
            columns: values by column.
            units: unit of each column, written as metadata.
            labels: further metadata of some columns.
        """
        arrays = {key: column(values) for key, values in columns.items()}
        fields = [
            pa.field(key, array.type, metadata={"unit": units[key], **(labels or {}).get(key, {})})
            for key, array in arrays.items()
        ]
        write_table(self.path / name, pa.table(list(arrays.values()), schema=pa.schema(fields)))

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet file. Raises ParibusError if it is missing or damaged.

        Args:
            name: name of the file.
            columns: columns to read, of which absent ones are skipped; None reads all.
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
            raise changed(self.path / name, f"it has no column {', '.join(lacking)}")
        return table


def column(values: np.ndarray) -> pa.Array:
    """Convert an array [n] of numbers or strings to an Arrow column, with NaN as null.

    It is built from buffers, because `pyarrow.array` imports pandas if installed, which costs
    memory in every worker.
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
