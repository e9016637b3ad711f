"""Discovery of objects by type or name, and lazy imports across layers of the package."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
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
    """Return the module-level instances of `kind` in a package, keyed by name.

    The order is that of files and lines.
    """
    kinds: dict[str, T] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type):
                value = vars(value).get(DECLARED)  # not what it inherits
            if isinstance(value, kind):
                kinds[value.name] = value
    return kinds


def provided(kind: str, name: str) -> Any:
    """Import and return the object registered in `PROVIDED` under `kind` and `name`."""
    return pkgutil.resolve_name(PROVIDED[kind][name])


def homes(file: str) -> dict[str, str]:
    """Parse the imports under `if TYPE_CHECKING` in `file`, and return {name: module}.

    Lazily imported names thus need to be listed only once.
    """
    tree = ast.parse(Path(file).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (line for line in block.body if isinstance(line, ast.ImportFrom))
    return {alias.name: str(line.module) for line in imports for alias in line.names}


def load_name(name: str, module: str, homes: dict[str, str]) -> Any:
    """Import attribute `name` for the lazy module `module`, from the module given by `homes`.

    Raises AttributeError if `name` is not in `homes`.
    """
    if name not in homes:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    return getattr(importlib.import_module(homes[name]), name)
