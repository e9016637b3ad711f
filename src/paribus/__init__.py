"""paribus (*ceteris paribus*, all else equal): does a change to a language model's training help?

import paribus

study = paribus.load_study("quickstart")     # a shipped name, or the path of a TOML file
results = paribus.run(study)                 # trains what is not trained yet
results.scores  # a pyarrow table: one row per trial
paribus.decide(paribus.analyse(results))  # the verdict on every arm
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from paribus.version import VERSION

if TYPE_CHECKING:
    from paribus.analysis import analyse as analyse
    from paribus.analysis import detectable as detectable
    from paribus.decision import decide as decide
    from paribus.engine.execution.evaluate import evaluate as evaluate
    from paribus.engine.execution.start import estimate as estimate
    from paribus.engine.export import export_trial as export_trial
    from paribus.errors import ParibusError as ParibusError
    from paribus.readers.judge import judge as judge
    from paribus.report.page import write_report as write_report
    from paribus.results import extend as extend
    from paribus.results import load_results as load_results
    from paribus.runs import register as register
    from paribus.runs import run as run
    from paribus.study import Study as Study
    from paribus.study import load_study as load_study
    from paribus.study import shipped_studies as shipped_studies
    from paribus.verification import verify as verify

__version__ = VERSION

# Where each public name lives; nothing is loaded before it is asked for.
_HOMES = {
    name: module
    for module, names in {
        "paribus.analysis": "analyse detectable",
        "paribus.decision": "decide",
        "paribus.engine.execution.start": "estimate",
        "paribus.engine.execution.evaluate": "evaluate",
        "paribus.engine.export": "export_trial",
        "paribus.errors": "ParibusError",
        "paribus.report.page": "write_report",
        "paribus.results": "extend load_results",
        "paribus.study": "Study load_study shipped_studies",
        "paribus.runs": "register run",
        "paribus.readers.judge": "judge",
        "paribus.verification": "verify",
    }.items()
    for name in names.split()
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    """Return the public names, though nothing of them has been loaded yet."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "figures":
        return importlib.import_module("paribus.figures")
    if name not in _HOMES:
        raise AttributeError(f"module 'paribus' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
