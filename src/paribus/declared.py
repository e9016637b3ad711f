"""Registries: what the files of a folder declare, and what higher layers provide to lower ones."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Protocol, TypeVar


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)

# By kind and name, import paths of what a lower layer asks for by name; `paribus` lists them.
PROVIDED: dict[str, dict[str, str]] = {}

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


def provided(kind: str, name: str) -> Any:
    """Return what is listed in `PROVIDED`; it is imported now."""
    return pkgutil.resolve_name(PROVIDED[kind][name])
