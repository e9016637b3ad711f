"""Optional training engine: trains, evaluates and exports models (`pip install
paribus[train]`).

Without the engine, paribus still reads, analyses, reports and checks finished studies.
"""

from __future__ import annotations

import importlib.util
from functools import cache

PACKAGES = ("lm_eval", "rensa", "safetensors", "tokenizers", "torch")
INSTALL = "pip install 'paribus[train]'"


@cache
def has_engine() -> bool:
    """Return whether all packages of the engine are installed, without importing them."""
    return all(importlib.util.find_spec(name) for name in PACKAGES)


def missing_package(error: BaseException | None) -> str | None:
    """Return the missing engine package that caused `error`; None for any other error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            root = error.name.partition(".")[0]
            if root in PACKAGES:
                return root
        error = error.__cause__ or error.__context__
    return None
