"""Safe reading of untrusted files: study files, records, tokenizers and texts.

Such files may be damaged or malicious. Only regular files are opened, because a named pipe could
block and a device could stream without end. Files above a size limit are rejected. Error messages
are one line that states the file, the rule and the fix.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tomllib
from collections.abc import Callable
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError

MIB = 2**20
is_regular = os.path.isfile

# The largest file of each kind, in bytes.
STUDY_BYTES = 1 * MIB  # the built-in ones have 3 KiB
CODE_BYTES = 4 * MIB
RECORD_BYTES = 256 * MIB  # read whole: initial.json of 100,000 parameters has some 20 MiB
CONVERT = "convert it, such as with: iconv -f latin1 -t utf-8"
LARGEST = 1024 * 1024 * MIB  # of tables, logs, texts and weights, which are read in pieces


def regular_path(path: str | os.PathLike[str], limit: int = LARGEST, *, missing: str = "") -> str:
    """Check that a path is a regular file of at most `limit` bytes, and return it as a string.

    Raises ParibusError otherwise, with the message `missing` if the file does not exist.
    """
    name = os.fspath(path)
    try:
        status = os.stat(name)  # opening alone may do something to a device, or wait for a pipe
    except FileNotFoundError:
        raise ParibusError(
            missing or f"{name} does not exist; correct the path", code="missing"
        ) from None
    except (OSError, ValueError) as error:  # of a null byte, or half of a character
        raise _unreadable(name, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise ParibusError(f"{name} is not a regular file; correct the path", code="unreadable")
    if status.st_size > limit:
        raise ParibusError(
            f"{name} has {status.st_size:,} bytes, more than the limit of {limit:,}; check that it "
            "is the right file",
            code="unreadable",
        )
    return name


def open_regular(
    path: str | os.PathLike[str], limit: int = LARGEST, *, missing: str = ""
) -> BufferedReader:
    """Open a regular file of at most `limit` bytes for reading. Raises ParibusError on failure."""
    name = regular_path(path, limit, missing=missing)
    try:
        return open(name, "rb")
    except OSError as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> ParibusError:
    why = getattr(error, "strerror", None) or error
    return ParibusError(f"cannot read {name}: {why}; correct the path", code="unreadable")


def read_bytes(
    path: str | os.PathLike[str], limit: int = RECORD_BYTES, *, missing: str = ""
) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises ParibusError if it is unreadable."""
    with open_regular(path, limit, missing=missing) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], limit: int = RECORD_BYTES, *, missing: str = "") -> str:
    """Read a UTF-8 file without converting line endings. Raises ParibusError if it is invalid."""
    try:
        return read_bytes(path, limit, missing=missing).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParibusError(
            f"{path} is not UTF-8 text (byte {error.start}); {CONVERT}", code="unreadable"
        ) from None


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse JSON text. Raises ParibusError if it is invalid or contains NaN or infinities.

    `where` describes the source in error messages.
    """
    parse = partial(json.loads, text, parse_constant=_finite, parse_float=_finite)
    return _parsed(parse, where, "JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):  # NaN, Infinity, 1e999
        raise ValueError(f"{number[:40]} is not a finite number")
    return value


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML text. Raises ParibusError if it is invalid.

    `where` describes the source in error messages.
    """
    return _parsed(partial(tomllib.loads, text), where, "TOML")


def _parsed(parse: Callable[[], Any], where: str, language: str) -> Any:
    try:
        return parse()
    except RecursionError:
        problem = "is nested too deeply; check that it is the right file"
        raise ParibusError(f"{where} {problem}", code="unreadable") from None
    except ValueError as error:
        raise ParibusError(
            f"{where} is not valid {language} ({error}); correct or restore it", code="unreadable"
        ) from None


def read_json(path: str | os.PathLike[str], *, missing: str = "") -> Any:
    """Parse a JSON file of at most RECORD_BYTES. Raises ParibusError if it is invalid."""
    return parse_json(read_text(path, missing=missing), os.fspath(path))


def files_below(folder: Path) -> list[Path]:
    """Return all files below `folder`, sorted by path, skipping hidden files and folders.

    Symbolic links are followed, but each folder is visited only once.
    """

    def refuse(error: OSError) -> None:
        raise ParibusError(
            f"cannot read {error.filename}: {error.strerror}; check its permissions"
        ) from None

    files: list[Path] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "."]
        if (real := os.path.realpath(parent)) in seen:
            folders.clear()
            continue
        seen.add(real)
        files += [Path(parent, name) for name in names if name[0] != "."]
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())
