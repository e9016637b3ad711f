"""Canonical JSON and SHA-256 digests: equal values have equal bytes and equal digests."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any


def canonical_json(value: Any, *, sort_keys: bool = True) -> str:
    """Serialize a value as canonical JSON. Raises ValueError for NaN and infinities.

    If `sort_keys` is False, the order of dict keys is preserved and affects the result.
    """
    text = json.dumps(value, sort_keys=sort_keys, indent=2, ensure_ascii=False, allow_nan=False)
    return text + "\n"


def plain(value: Any) -> Any:
    """Convert a value to JSON types, replacing NaN and infinities by None.

    Dataclass fields with `repr=False` are excluded.
    """
    if is_dataclass(value):
        return {key.name: plain(getattr(value, key.name)) for key in fields(value) if key.repr}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested dict to dotted keys: {"a": {"b": 1}} gives {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{dotted}.")
        else:
            flat[dotted] = value
    return flat


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compare two nested dicts, and return {dotted key: (before, after)} for differing values.

    An empty dict counts as missing, so only the keys of its nonempty counterpart are returned.
    """
    old, new = (
        {key: value for key, value in flatten(tree).items() if value != {}}
        for tree in (before, after)
    )
    keys = sorted(old.keys() | new.keys())
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


# Code that trains and measures. Code that reads, analyses and reports may change after a study.
TRAINS_AND_MEASURES = (
    *(f"engine/{room}" for room in ("data", "evaluation", "model", "ops", "probes", "tasks")),
    *("engine/training", "engine/execution/trial", "engine/machine/steps.py"),
    *("engine/observation.py", "engine/rows.py", "rng.py"),
)


@cache
def package_digest() -> str:
    """Return the SHA-256 of the installed source files for training and evaluation.

    The version number alone does not identify an edited checkout.
    """
    root = Path(__file__).parent
    total = hashlib.sha256()
    for part in TRAINS_AND_MEASURES:
        files = sorted((root / part).rglob("*")) if (root / part).is_dir() else [root / part]
        for file in files:
            if file.suffix in (".py", ".cpp", ".h"):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                total.update(f"{file.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()
