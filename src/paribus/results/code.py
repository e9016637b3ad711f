"""What of paribus itself made a record: a digest of its installed source."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def package_digest() -> str:
    """SHA-256 over every source file of the installed package, by name.

    The version alone says little: a checkout is edited, and keeps it.
    """
    root = Path(__file__).parents[1]
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        total.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
