"""Optional training engine that trains, evaluates and exports models.

Install it with `pip install paribus[train]`. Without the engine, paribus can still read, analyze,
report and check finished studies.
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
