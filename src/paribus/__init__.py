"""paribus (*ceteris paribus*, all else equal): does a change to a language model's training help?

import paribus

study = paribus.load_study("quickstart")     # a shipped name, or the path of a TOML file
results = paribus.run(study)                 # trains what is not trained yet
results.scores.to_pandas()                   # one row per trial
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paribus.errors import ParibusError
    from paribus.execution import run
    from paribus.results import load_results
    from paribus.study import Study, load_study, shipped_studies

__version__ = "0.1.0"

# Where each public name lives; nothing is loaded before it is asked for.
_HOMES = {
    "ParibusError": "paribus.errors",
    "Study": "paribus.study",
    "load_results": "paribus.results",
    "load_study": "paribus.study",
    "run": "paribus.execution",
    "shipped_studies": "paribus.study",
}

__all__ = ["ParibusError", "Study", "load_results", "load_study", "run", "shipped_studies"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paribus' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
