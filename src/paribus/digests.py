"""One spelling for every record: equal values give equal bytes, and so equal digests."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any


def canonical_json(value: Any, *, sort_keys: bool = True) -> str:
    """JSON text with one spelling; raises ValueError for NaN and infinities.

    Without `sort_keys` the order of a dict's keys is kept, and is part of the value.
    """
    text = json.dumps(value, sort_keys=sort_keys, indent=2, ensure_ascii=False, allow_nan=False)
    return text + "\n"


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dict as one of dotted keys: {"a": {"b": 1}} gives {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{dotted}.")
        else:
            flat[dotted] = value
    return flat


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ between two nested dicts: {key: (before, after)}.

    An empty table is one without keys: what is in the other one differs, and not the table too.
    """
    flat_before, flat_after = (
        {key: value for key, value in flatten(tree).items() if value != {}}
        for tree in (before, after)
    )
    return {
        key: (flat_before.get(key), flat_after.get(key))
        for key in sorted(flat_before.keys() | flat_after.keys())
        if flat_before.get(key) != flat_after.get(key)
    }


@cache
def package_digest() -> str:
    """SHA-256 over every source file of the installed package, by name.

    The version alone says little: a checkout is edited, and keeps it.
    """
    root = Path(__file__).parent
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        total.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
