"""Optional training engine (`pip install paribus[train]`): trains, evaluates and exports models.

Without the engine, paribus still reads, analyses, reports and checks finished studies.
"""

from __future__ import annotations

import importlib.util
from functools import cache

PACKAGES = ("lm_eval", "rensa", "safetensors", "tokenizers", "torch")
INSTALL = "pip install 'paribus[train]'"


@cache
def has_engine() -> bool:
    """Return whether all packages that the engine needs are installed, without importing them."""
    return all(importlib.util.find_spec(name) for name in PACKAGES)
