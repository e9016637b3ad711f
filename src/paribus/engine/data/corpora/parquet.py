"""`parquet`: Parquet files with a column of text, read a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.engine.data.corpora import corpus
from paribus.engine.data.reading import COMPRESSIONS, corpus_files
from paribus.errors import ParibusError, nearest
from paribus.study import Data
from paribus.untrusted_io import TEXT_BYTES, open_regular

ROWS = 1024  # at a time


@corpus(
    "parquet",
    reads=("path", "column"),
    files=corpus_files,
    about="Parquet files with a column of text, each row a document",
)
def parquet(data: Data, folder: Path) -> Iterator[str]:
    """`data.column` of every row of the file `data.path`, or of the files below that folder."""
    for file in corpus_files(data, folder):
        yield from rows_of(file, data.text_column)


def rows_of(file: Path, column: str) -> Iterator[str]:
    """The texts in `column` of a Parquet file, whatever its compression inside."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(file, TEXT_BYTES) as content, pq.ParquetFile(content) as opened:
            _require_text(file, column, opened.schema_arrow)
            row = 0
            for batch in opened.iter_batches(batch_size=ROWS, columns=[column]):
                # By its name: a dot in it is also the path of what is inside of another column.
                for value in batch.column(column).to_pylist():
                    row += 1
                    if value is None:
                        raise ParibusError(
                            f"{file}, row {row}, has no text in data.column = '{column}'; leave "
                            "the row out"
                        )
                    yield value
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        packed = file.suffix in COMPRESSIONS  # the format compresses what is inside of it
        way_out = "unpack it" if packed else "take it away if it is another, or fetch it again"
        raise ParibusError(
            f"{file} is no Parquet file, or damaged ({str(error)[:100]}); {way_out}"
        ) from None
    except UnicodeDecodeError:
        raise ParibusError(f"{file}: column '{column}' is not UTF-8 text; convert it") from None
    except OSError as error:
        if error.errno is None:  # what the library says of bad bytes
            raise ParibusError(
                f"{file} is damaged ({str(error)[:100]}); fetch the file again"
            ) from None
        raise ParibusError(f"cannot read {file}: {error.strerror}") from None


def _require_text(file: Path, column: str, schema: Any) -> None:
    import pyarrow as pa

    def is_text(kind: Any) -> bool:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        types = pa.types
        return bool(
            types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        )

    if schema.names.count(column) > 1:
        raise ParibusError(
            f"{file} has {schema.names.count(column)} columns called '{column}' (data.column); "
            "give them different names"
        )
    known = [field.name for field in schema if is_text(field.type)]
    if column not in known:
        raise ParibusError(
            f"{file} has no column of text called '{column}' (data.column): "
            f"{nearest(column, known)}"
        )
