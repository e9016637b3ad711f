"""Cache of token ids and text statistics, shared by all commands and workers.

    <cache>/tokens/<key>.bin    token ids
    <cache>/index/<key>.json    digests and counts of texts and of token ids

A key is a digest of everything that determines the content, so an entry never becomes stale. The
cache may be deleted at any time, and is never part of a results folder.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from paribus.digests import canonical_json, digest
from paribus.engine.data.tokens import Tokens, tokens_digest
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes

FORMAT = 7  # of the files of tokens


def remembered(identity: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the cached value for `identity`, computing and storing it if missing.

    Args:
        identity: JSON values that determine the result.
        make: function that computes the value.
    """
    file = cache_folder() / "index" / f"{digest(identity)}.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(file.read_bytes())
    value = make()
    with contextlib.suppress(ParibusError):  # it is only ever a shortcut
        write_bytes(file, canonical_json(value).encode())
    return value


def signature(files: list[Path]) -> list[list[Any]]:
    """Return the path, size, mtime and ctime of each file, to detect changes.

    The ctime is included because copying tools can set a file's mtime, but not its ctime.
    """
    entries = []
    for file in files:
        stat = file.stat()
        path = os.fsencode(file.resolve()).decode(errors="backslashreplace")  # it may be no UTF-8
        entries.append([path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    return entries


def cached_tokens(
    identity: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], dtype: np.dtype[Any]
) -> tuple[Tokens, str]:
    """Return tokens from the cache and their digest, computing and storing them if missing.

    If several processes need the same tokens concurrently, only one computes them.

    Args:
        identity: JSON values that determine the tokens.
        make: function that returns arrays of token ids, to be concatenated.
        dtype: integer type of the stored ids.

    Raises ParibusError if the cache cannot be written or a cached file is damaged.
    """
    name = digest(identity | {"format": FORMAT})
    file = cache_folder() / "tokens" / f"{name}.bin"
    if not file.is_file():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(file.with_suffix(".lock")):
                if not file.is_file():
                    _write(file, make(), dtype)
        except OSError as error:
            raise ParibusError(
                f"cannot write to the cache folder {file.parent} ({error.strerror}); free disk "
                "space, or set PARIBUS_CACHE to another folder",
                code="system",
            ) from None
    # An empty file cannot be mapped.
    tokens = np.memmap(file, dtype, "r") if file.stat().st_size else np.zeros(0, dtype)
    known = remembered(
        {"tokens": name}, lambda: {"n": len(tokens), "digest": tokens_digest(tokens)}
    )
    if len(tokens) != known["n"]:
        raise ParibusError(
            f"the cached file {file} has {len(tokens)} tokens instead of {known['n']}; delete it "
            "to tokenize the text again",
            code="unreadable",
        )
    return tokens, known["digest"]


def _write(file: Path, arrays: Iterable[np.ndarray], dtype: np.dtype[Any]) -> None:
    """Write the concatenated `arrays` to `file` atomically, through a temporary file."""
    partial = file.with_suffix(".part")
    with open(partial, "wb") as content:
        for ids in arrays:
            content.write(ids.astype(dtype, copy=False).data)
        content.flush()
        os.fsync(content.fileno())
    partial.replace(file)
