"""File corpora, `text`, `jsonl` and `parquet`.

Files are streamed, never loaded into memory as a whole. Text and JSON lines may be compressed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.engine.data.corpora import corpus
from paribus.engine.data.pieces import Document
from paribus.engine.setting import Data
from paribus.errors import ParibusError, nearest
from paribus.untrusted_io import CONVERT, files_below, open_regular

CHUNK_CHARACTERS = 2**22
ROWS = 1024  # of a Parquet file, at a time
JSON_SUFFIXES = frozenset({".jsonl", ".ndjson"})


COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def corpus_files(data: Data, folder: Path) -> list[Path]:
    """Return the file `data.path`, or all non-hidden files below that folder, sorted by path.

    Raises ParibusError if no file exists, or if a file cannot be opened.
    """
    if data.path is None:
        raise ParibusError(
            f"data.corpus = '{data.corpus}' requires data.path; set it to a file or a folder",
            code="missing",
        )
    path = folder / data.path
    missing = f"data.path = '{data.path}' does not exist ({path}); correct the path"
    # isdir never raises: what cannot be looked at is told when it is opened.
    files = files_below(path) if os.path.isdir(path) else [path]
    for file in files:
        open_regular(file, missing=missing).close()
    return files


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressing it if its name ends with .gz or .zst.

    Raises ParibusError if the file cannot be read or is damaged, including errors of the `with`
    block that reads it.
    """
    try:
        with open_regular(path) as file:
            if path.suffix in COMPRESSIONS:
                plain = pa.CompressedInputStream(file, COMPRESSIONS[path.suffix])
                yield io.BufferedReader(plain)  # type: ignore[arg-type]
            else:
                yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        if reason := getattr(error, "strerror", None):
            raise ParibusError(
                f"cannot read {path} ({reason}); check the path and its permissions"
            ) from None
        raise ParibusError(
            f"{path} is damaged or not a {path.suffix} file ({str(error)[:100]}); replace it with "
            "an intact copy"
        ) from None


def parts_of(path: Path) -> Iterator[str]:
    """Yield the text of a UTF-8 file in chunks, keeping line endings.

    Raises ParibusError if the file is not UTF-8, or if its extension denotes JSON lines.
    """
    inner = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    if inner.suffix in JSON_SUFFIXES:
        raise ParibusError(
            f"{path} contains JSON lines, not plain text; set data.corpus = 'jsonl', and set "
            "data.column to the key that contains the text"
        )
    with opened(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:  # type: ignore[arg-type]
        try:
            while part := text.read(CHUNK_CHARACTERS):
                yield part
        except UnicodeDecodeError:
            raise ParibusError(f"{path} is not UTF-8 text; {CONVERT}") from None


@corpus("text", reads=("path",), files=corpus_files)
def text(data: Data, folder: Path) -> Iterator[Document]:
    """Yield the file `data.path`, or each file below that folder, as one document."""
    return (parts_of(file) for file in corpus_files(data, folder))


@corpus("jsonl", reads=("path", "column"), files=corpus_files)
def jsonl(data: Data, folder: Path) -> Iterator[str]:
    """Yield the value of the key `data.column` in each line of the files at `data.path`."""
    key = data.text_column
    for path in corpus_files(data, folder):
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                where = f"{path}, line {number},"
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ParibusError(
                        f"{where} is not valid JSON ({str(error)[:100]}); correct the line",
                        code="unreadable",
                    ) from None
                if not isinstance(record, dict):
                    raise ParibusError(
                        f'{where} is not a JSON object; write each line as {{"{key}": "..."}}',
                        code="unreadable",
                    )
                yield text_at(key, record, where)


@corpus("parquet", reads=("path", "column"), files=corpus_files)
def parquet(data: Data, folder: Path) -> Iterator[str]:
    """Yield the value of the column `data.column` in each row of the files at `data.path`."""
    column = data.text_column
    for file in corpus_files(data, folder):
        with opened(file) as content, pq.ParquetFile(content) as table:
            names = table.schema_arrow.names
            if (n := names.count(column)) != 1:
                hint = "rename all but one" if n else nearest(column, names)
                raise ParibusError(f"{file} has {n} columns '{column}' (data.column); {hint}")
            row = 0
            for batch in table.iter_batches(batch_size=ROWS, columns=[column]):
                # By its name: a dot in it is also the path of what is inside of another column.
                for value in batch.column(column).to_pylist():
                    row += 1
                    yield text_at(column, {column: value}, f"{file}, row {row},")


def text_at(column: str, record: dict[str, Any], where: str) -> str:
    """Return the string `record[column]`. Raises ParibusError if it is not a string.

    `where` identifies the row in error messages.
    """
    value = record.get(column)
    if isinstance(value, str):
        return value
    known = [name for name, inner in record.items() if isinstance(inner, str)]
    raise ParibusError(f"{where} has no text in data.column = '{column}'; {nearest(column, known)}")
