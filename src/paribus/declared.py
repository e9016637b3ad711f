"""Registries of probes, measures and tasks without a list: what the files of a folder declare.

A file put into such a folder is found by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, TypeVar


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)

# The attribute of a class that says what it declares; functions are made what they declare.
DECLARED = "__declared__"


def declared(package: str, kind: type[T]) -> dict[str, T]:
    """Return every `kind` in the modules of `package`, by name; in the order of files, then of
    lines.

    Raises ValueError where two have one name.
    """
    kinds: dict[str, T] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type):
                value = vars(value).get(DECLARED)  # not what it inherits
            if isinstance(value, kind) and kinds.setdefault(value.name, value) is not value:
                raise ValueError(
                    f"{kind.__name__.lower()} '{value.name}' is there twice, again in {info.name}"
                )
    return kinds
