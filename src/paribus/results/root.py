"""One digest over all that was registered and sealed, for a paper to quote.

It is a hash of hashes (Merkle 1987), in the format of `sha256sum`, so that a shell recomputes it:

    cd DIR && sha256sum registration*.json manifest.json trials/*/*/manifest.json \\
        | LC_ALL=C sort -k 2 | sha256sum

where `manifest.json` is left out before a run has written one. Registrations are the one in
force and those before it; a manifest holds the digests of every sealed record beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from paribus.files import file_digest

SEALED = ("registration*.json", "manifest.json", "trials/*/*/manifest.json")


def root_lines(folder: Path) -> list[str]:
    """The lines of `sha256sum` for every registration and manifest, in the order of paths."""
    files = {path.relative_to(folder).as_posix(): path for g in SEALED for path in folder.glob(g)}
    names = sorted(files, key=lambda name: name.encode("utf-8", "surrogateescape"))
    return [f"{file_digest(files[name])}  {name}\n" for name in names]


def root_digest(folder: Path) -> str:
    """SHA-256 of those lines. Raises ParibusError where one of the files cannot be read."""
    return digest_of(root_lines(folder))


def digest_of(lines: Iterable[str]) -> str:
    """SHA-256 of lines that `root_lines` gave."""
    text = "".join(lines)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def of_the_study(lines: Iterable[str]) -> list[str]:
    """Those of them that are about no single trial."""
    return [line for line in lines if "  trials/" not in line]
