"""Text that was read once is kept, so that no later command and no worker reads it again.

<cache>/tokens/<key>/    tokens.bin  manifest.json     tokens, by their content
<cache>/index/<key>.json                               what is known of files

A key is a digest of whatever decides the content, so nothing here is ever out of date: other text
has another key. All of it may be deleted at any time. The results folder never holds any of it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock
from pydantic import BaseModel, NonNegativeInt

from paribus.digests import canonical_json, digest
from paribus.engine.data.tokens import Tokens, tokens_digest
from paribus.errors import ParibusError
from paribus.files import cache_folder, remove_folder, whole_folder, write_bytes

FORMAT = 5  # of the files of tokens
TOKENS, MANIFEST = "tokens.bin", "manifest.json"


def recall(key: str) -> dict[str, Any] | None:
    """Return what was kept under `key`; None where nothing is."""
    try:
        return json.loads((cache_folder() / "index" / f"{key}.json").read_bytes())
    except (OSError, ValueError):
        return None


def keep(key: str, value: dict[str, Any]) -> None:
    """Keep `value` under `key`, where the cache can be written; it is only ever a shortcut."""
    with contextlib.suppress(ParibusError):
        write_bytes(cache_folder() / "index" / f"{key}.json", canonical_json(value).encode())


def signature(files: list[Path]) -> list[list[Any]]:
    """Return what tells whether `files` are as they were.

    The time of the last change of a file's entry is among it: tools that copy give a file the time
    of another one, and nobody can set that one.
    """
    entries = []
    for file in files:
        stat = file.stat()
        path = os.fsencode(file.resolve()).decode(errors="backslashreplace")  # it may be no UTF-8
        entries.append([path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    return entries


class Manifest(BaseModel, strict=True):
    """The record of a folder of tokens; the digest is of these."""

    dtype: Literal["<u2", "<u4", "<u8"]
    tokens: NonNegativeInt
    digest: str


def cached_tokens(
    identity: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], dtype: np.dtype[Any]
) -> tuple[Tokens, str]:
    """Return the tokens that `identity` names, and their digest; they are made unless they exist.

    `make` gives them in arrays of any lengths. Two runs that need them at once make them once.
    Raises ParibusError where the cache cannot be written, or is damaged.
    """
    folder = cache_folder() / "tokens" / digest(identity | {"format": FORMAT})
    if not (folder / MANIFEST).is_file():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder.with_name(f".{folder.name}.lock")).acquire()
        except OSError as error:
            raise ParibusError(
                f"cannot write the cache {folder.parent}: {error.strerror}; set PARIBUS_CACHE to a "
                "folder that can be written",
                code="system",
            ) from None
        with lock:
            if not (folder / MANIFEST).is_file():
                remove_folder(folder)  # a remainder: nobody can tell whose tokens
                with whole_folder(folder) as partial:
                    _write(partial, make(), dtype)
    return _open(folder)


def _write(folder: Path, arrays: Iterable[np.ndarray], dtype: np.dtype[Any]) -> None:
    """Write `arrays`, one after the other, as one file; the manifest comes last."""
    with open(folder / TOKENS, "wb") as file:
        for ids in arrays:
            file.write(ids.astype(dtype, copy=False).data)
        file.flush()
        os.fsync(file.fileno())
    tokens = _mapped(folder / TOKENS, dtype)
    manifest = Manifest(dtype=dtype.str, tokens=len(tokens), digest=tokens_digest(tokens))  # type: ignore[arg-type]
    write_bytes(folder / MANIFEST, manifest.model_dump_json().encode())


def _open(folder: Path) -> tuple[Tokens, str]:
    """Return the tokens in `folder`, and their digest. Raises ParibusError for a damaged folder."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        tokens = _mapped(folder / TOKENS, np.dtype(manifest.dtype))
        if len(tokens) != manifest.tokens:
            raise ValueError
    except (OSError, ValueError):
        raise ParibusError(
            f"the tokens in {folder} are damaged; delete the folder {folder} to have the text "
            "tokenized again",
            code="unreadable",
        ) from None
    return tokens, manifest.digest


def _mapped(file: Path, dtype: np.dtype[Any]) -> Tokens:
    # An empty file cannot be mapped.
    return np.memmap(file, dtype, "r") if file.stat().st_size else np.zeros(0, dtype)
