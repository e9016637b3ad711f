"""Writing so that a file is either whole or not there: temporary file, fsync, rename."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.errors import ParibusError
from paribus.study.canonical import canonical_json


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically; folders are made as needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(partial, 0o644)  # mkstemp's 0600 would hide results from colleagues
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
            raise
    except OSError as error:
        raise ParibusError(
            f"cannot write {path}: {error.strerror}; choose another folder"
        ) from None


def write_json(path: Path, value: Any, *, sort_keys: bool = True) -> None:
    """Canonical JSON: equal values give equal bytes."""
    write_bytes(path, canonical_json(value, sort_keys=sort_keys).encode())


def write_table(path: Path, table: pa.Table) -> None:
    """Parquet, with the units that the schema's fields carry."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_bytes(path, sink.getvalue().to_pybytes())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ParibusError(f"{path} is missing; was the results folder moved in part?") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ParibusError(f"{path} is not valid JSON ({error}); restore it or run again") from None
    except OSError as error:
        raise ParibusError(f"cannot read {path}: {error.strerror}") from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
