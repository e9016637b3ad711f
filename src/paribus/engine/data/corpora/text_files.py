"""Corpora that are files: `text`, `jsonl` and `parquet`, compressed or not, read as streams.

UTF-8 is checked to the byte, and no file is ever whole in memory.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from paribus.engine.data.corpora import corpus
from paribus.engine.data.pieces import Document
from paribus.engine.setting import Data
from paribus.errors import ParibusError, nearest
from paribus.files import cache_folder
from paribus.untrusted_io import CONVERT, TEXT_BYTES, files_below, open_regular

CHUNK_BYTES = 2**22
ROWS = 1024  # of a Parquet file, at a time
PARQUET_MAGIC = b"PAR1"
CONVERT_UTF16 = "it is UTF-16; convert it with: iconv -f utf-16 -t utf-8"
JSON_SUFFIXES = frozenset({".jsonl", ".ndjson"})
# What a line of JSON lines may hold; a longer one is no document of text.
LONGEST_LINE = 2**28


def _zstd(file: IO[bytes]) -> IO[bytes]:
    import pyarrow  # no zstd in the standard library before Python 3.14

    return io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd"))  # type: ignore[arg-type]


COMPRESSIONS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),  # type: ignore[dict-item,return-value]
    ".bz2": lambda file: bz2.BZ2File(file),
    ".xz": lambda file: lzma.LZMAFile(file),  # noqa: SIM115 - `opened` closes what is below
    ".zst": _zstd,
}


def corpus_files(data: Data, folder: Path, key: str = "path") -> list[Path]:
    """Return the files of `data.path` (or another `key`): itself, or all that are visible below it.

    In the order of paths. Raises ParibusError where there is none, and where the cache of tokens
    would be read as text.
    """
    name = getattr(data, key)
    if name is None:
        raise ParibusError(
            f"data.corpus = '{data.corpus}' needs data.{key}, a file or a folder of them"
        )
    path = folder / name
    is_folder = os.path.isdir(path)  # never raises: what cannot be looked at is told when opened
    if is_folder:
        _require_no_cache(path, f"data.{key} = '{name}'")
    missing = f"data.{key} = '{name}' does not exist at {path}; correct the path"
    files = list(files_below(path)) if is_folder else [path]
    for file in files:
        open_regular(file, TEXT_BYTES, missing=missing).close()
    return files


def _require_no_cache(folder: Path, told: str) -> None:
    """Raise ParibusError where the cache lies among the visible files of `folder`."""
    cache, home = cache_folder().resolve(), folder.resolve()
    if not cache.is_relative_to(home):
        return
    if not any(part.startswith(".") for part in cache.relative_to(home).parts):
        raise ParibusError(
            f"the cache {cache} lies in the folder of text {told}, and would be read as text; set "
            "PARIBUS_CACHE to a folder outside of it"
        )


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Yield the bytes of `path`, decompressed where its name ends with .gz, .bz2, .xz or .zst.

    Raises ParibusError where the file cannot be read or is damaged, also while it is read.
    """
    decompress = COMPRESSIONS.get(path.suffix)
    try:
        with open_regular(path, TEXT_BYTES) as file:
            yield decompress(file) if decompress else file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ParibusError(
            f"{path} is damaged or no {path.suffix} file ({error}); fetch it again"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        if decompress and error.errno is None:  # what bz2 and zstd say of bad bytes
            raise ParibusError(
                f"{path} is damaged or no {path.suffix} file ({reason}); fetch it again"
            ) from None
        raise ParibusError(f"cannot read {path}: {reason}") from None


def parts_of(path: Path) -> Iterator[str]:
    """Yield the text of a UTF-8 file, part by part, its line endings as they are.

    Raises ParibusError that names the first byte that is not UTF-8, and for Parquet and JSON lines.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    begin = 0  # the byte that the decoder's next input starts at
    with opened(path) as file:
        while True:
            chunk = file.read(CHUNK_BYTES)
            if begin == 0:
                _require_plain(path, chunk)
            held = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                at = begin - held + error.start
                way_out = CONVERT if at or not _is_utf16(chunk) else CONVERT_UTF16
                raise ParibusError(f"{path} is not UTF-8 text (byte {at}); {way_out}") from None
            begin += len(chunk)
            if text:
                yield text
            if not chunk:
                return


def _require_plain(path: Path, start: bytes) -> None:
    """Raise ParibusError where a file given as plain text is of a format that is read otherwise."""
    if start.startswith(PARQUET_MAGIC):
        raise ParibusError(
            f"{path} is a Parquet file and no plain text; set data.corpus = 'parquet', and "
            "data.column to the column of the text"
        )
    inner = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    if inner.suffix in JSON_SUFFIXES or _is_json_lines(start):
        raise ParibusError(
            f"{path} is a file of JSON lines and no plain text; set data.corpus = 'jsonl', and "
            "data.column to the key of the text"
        )


def _is_utf16(start: bytes) -> bool:
    """Return whether a file starts with the mark of UTF-16, as Windows writes it."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _is_json_lines(start: bytes) -> bool:
    """Return whether a file starts with two lines that are JSON objects each."""
    first = start.split(b"\n", 3)[:2]
    if len(first) < 2 or not all(line.lstrip().startswith(b"{") for line in first):
        return False
    try:
        return all(isinstance(json.loads(line), dict) for line in first)
    except ValueError:
        return False


@corpus("text", reads=("path",), files=corpus_files, about="UTF-8 files, each a document")
def text(data: Data, folder: Path) -> Iterator[Document]:
    """Yield the file `data.path`, or every file below that folder, in the order of paths."""
    return (parts_of(file) for file in corpus_files(data, folder))


@corpus(
    "jsonl",
    reads=("path", "column"),
    files=corpus_files,
    about="files of JSON lines, each line a document",
)
def jsonl(data: Data, folder: Path) -> Iterator[str]:
    """Yield `data.column` of every line of the file `data.path`, or of the files below it."""
    for file in corpus_files(data, folder):
        yield from lines_of(file, data.text_column)


@corpus(
    "parquet",
    reads=("path", "column"),
    files=corpus_files,
    about="Parquet files with a column of text, each row a document",
)
def parquet(data: Data, folder: Path) -> Iterator[str]:
    """Yield `data.column` of every row of the file `data.path`, or of the files below it."""
    for file in corpus_files(data, folder):
        yield from rows_of(file, data.text_column)


def lines_of(path: Path, key: str) -> Iterator[str]:
    """Yield the text at `key` of every line of `path` that is not empty.

    Raises ParibusError for what is no JSON object with a text there, and where it has `key` twice.
    """
    number = 0

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and sum(name == key for name, _ in pairs) > 1:
            raise ParibusError(
                f"{path}, line {number}, has the key '{key}' twice, and nobody can tell which is "
                "meant; leave one of them out"
            )
        return found

    with opened(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise ParibusError(
                    f"{path}, line {number}, is longer than {LONGEST_LINE:,} bytes; is it a file "
                    "of JSON lines?"
                )
            if number == 1 and line.startswith(PARQUET_MAGIC):
                raise ParibusError(f"{path} is a Parquet file; set data.corpus = 'parquet'")
            if not line.strip():
                continue
            try:
                found = json.loads(line, object_pairs_hook=once)
            except UnicodeDecodeError as error:
                way_out = CONVERT_UTF16 if number == 1 and _is_utf16(line) else CONVERT
                raise ParibusError(
                    f"{path}, line {number}, is not UTF-8 text (byte {error.start} of the line); "
                    f"{way_out}"
                ) from None
            except (ValueError, RecursionError) as error:
                other = ", or take the file away if it is another" if number == 1 else ""
                raise ParibusError(
                    f"{path}, line {number}, is no JSON ({str(error)[:100]}); correct the line"
                    f"{other}"
                ) from None
            yield _text_at(key, found, f"{path}, line {number},")


def _text_at(key: str, found: Any, where: str) -> str:
    if not isinstance(found, dict):
        raise ParibusError(
            f'{where} is {_kind(found)} and no object; each line is one, such as {{"{key}": "..."}}'
        )
    if key not in found:
        known = [name for name, inner in found.items() if isinstance(inner, str)]
        raise ParibusError(f"{where} has no data.column = '{key}': {nearest(key, known)}")
    value = found[key]
    if not isinstance(value, str):
        raise ParibusError(
            f"{where} has {_kind(value)} in data.column = '{key}', and a document is a text; "
            "correct the line, or name the key of the text"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ParibusError(
            f"{where} has half of a surrogate pair (\\u{ord(value[error.start]):04x}) in "
            f"data.column = '{key}', which is no character; correct the line"
        ) from None
    return value


def _kind(value: Any) -> str:
    """Return JSON's name of the type of a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {dict: "an object", list: "a list", str: "a text"}
    return kinds.get(type(value), "a number")


def rows_of(file: Path, column: str) -> Iterator[str]:
    """Yield the texts in `column` of a Parquet file, whatever its compression inside."""
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
