"""Files of text as streams: compressed or not, UTF-8 checked to the byte, never whole in memory."""

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

from paribus.errors import ParibusError
from paribus.files import cache_folder
from paribus.study import Data
from paribus.untrusted_io import CONVERT, TEXT_BYTES, files_below, open_regular

CHUNK_BYTES = 2**22
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
    """The file that `data.path` (or another `key`) names, or every visible file below the folder.

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
    """The bytes of `path`, decompressed where its name ends with .gz, .bz2, .xz or .zst.

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
    """The text of a UTF-8 file, part by part, its line endings as they are.

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
    """Whether a file starts with the mark of UTF-16, as Windows writes it."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _is_json_lines(start: bytes) -> bool:
    """Whether a file starts with two lines that are JSON objects each."""
    first = start.split(b"\n", 3)[:2]
    if len(first) < 2 or not all(line.lstrip().startswith(b"{") for line in first):
        return False
    try:
        return all(isinstance(json.loads(line), dict) for line in first)
    except ValueError:
        return False


def objects_of(path: Path, key: str) -> Iterator[tuple[int, Any]]:
    """(number of the line, its JSON value) of every line of `path` that is not empty.

    Raises ParibusError for what is no line of JSON, and where an object has `key` twice.
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
                yield number, json.loads(line, object_pairs_hook=once)
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
