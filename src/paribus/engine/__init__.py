"""Optional training engine: trains, evaluates and exports models (`pip install
paribus[train]`).

Without it paribus is the judge: it reads finished studies, analyses, decides, reports and checks.
"""

from __future__ import annotations

import importlib.util
from functools import cache

PACKAGES = ("lm_eval", "rensa", "safetensors", "tokenizers", "torch")
INSTALL = "pip install 'paribus[train]'"


@cache
def has_engine() -> bool:
    """Return whether every package of the engine is there; none is imported."""
    try:
        return all(importlib.util.find_spec(name) for name in PACKAGES)
    except ImportError:
        return False


def missing_package(error: BaseException | None) -> str | None:
    """Return the package of the engine for want of which `error` was raised; None where it was
    not."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            root = error.name.partition(".")[0]
            if root in PACKAGES:
                return root
        error = error.__cause__ or error.__context__
    return None
