"""The files that a results folder keeps of its study, against the digests in its registration."""

from __future__ import annotations

import hashlib
from pathlib import Path

from paribus.errors import ParibusError
from paribus.study.custom_code import SOURCES
from paribus.untrusted_io import TOKENIZER_BYTES, is_regular, read_bytes, read_json


def changed_files(results: Path) -> list[str]:
    """Return what in `sources/` of a results folder is not what was registered, a line each."""
    registration, kept = results / "registration.json", results / SOURCES
    if not kept.is_dir() or not is_regular(registration):
        return []
    registered = read_json(registration)
    sources = registered.get("sources") if isinstance(registered, dict) else None
    if not isinstance(sources, dict):
        return []
    return [line for name, digest in sources.items() if (line := _changed(kept, name, digest))]


def require_kept(folder: Path) -> None:
    """Raise ParibusError where `folder`, which a study's paths start at, is the `sources/` of a
    results folder and holds other files than were registered."""
    changed = changed_files(folder.parent) if folder.name == SOURCES else []
    if changed:
        raise ParibusError(f"{'; '.join(changed)}; restore what was registered")


def _changed(kept: Path, name: str, digest: object) -> str:
    """Return why the file `name` is not the registered one; empty where it is."""
    file = kept / name
    try:
        if not file.resolve().is_relative_to(kept.resolve()):
            return f"{file} is registered, and lies outside of {kept}"
        if not is_regular(file):
            return f"{file} is missing, which was registered"
        same = hashlib.sha256(read_bytes(file, TOKENIZER_BYTES)).hexdigest() == digest
    except (OSError, ValueError):  # no name that a file can have
        same = False
    return "" if same else f"{file} was changed after it was registered"
