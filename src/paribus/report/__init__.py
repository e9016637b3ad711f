"""Tables, figures, page and paper, computed only from the records. No torch, no network."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paribus.report.compare import comparison_record, comparison_tables, write_comparison
    from paribus.report.figures import draw
    from paribus.report.page import prepare, render, write_report
    from paribus.report.paper import write_paper

# Loaded when asked for: what draws takes a second to import, and tables need none of it.
_HOMES = {
    "comparison_record": "compare",
    "comparison_tables": "compare",
    "draw": "figures",
    "prepare": "page",
    "render": "page",
    "write_comparison": "compare",
    "write_paper": "paper",
    "write_report": "page",
}

__all__ = [
    "comparison_record",
    "comparison_tables",
    "draw",
    "prepare",
    "render",
    "write_comparison",
    "write_paper",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paribus.report' has no attribute '{name}'")
    return getattr(importlib.import_module(f"paribus.report.{_HOMES[name]}"), name)
