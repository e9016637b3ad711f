"""Figures for notebooks: `paribus.figures.NAME(results)` returns an Altair chart.

`names(results)` lists the names of the page's figures, with punctuation replaced by `_`. NAME can
also be a prefix of such a name, or the name of an endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from paribus.analysis import analyse
from paribus.errors import ParibusError, nearest
from paribus.report.figures import Figure, draw
from paribus.results import Results


def names(results: Results) -> list[str]:
    """Return the names of all figures for which data are recorded, in the order of the page."""
    return list(_by_name(results))


def __getattr__(name: str) -> Callable[[Results], Any]:
    if name.startswith("__"):  # what Python and notebooks look for in a module
        raise AttributeError(name)
    return partial(_plot, name)


def _plot(name: str, results: Results) -> Any:
    """Return the figure `name` as an Altair chart. Raises ParibusError for an unknown name."""
    drawn = _by_name(results)
    begun = [label for label in drawn if label.startswith(name)]
    for label in (name, f"pairs_{name}", *begun):
        if label in drawn:
            return drawn[label].with_data()
    raise ParibusError(f"unknown figure '{name}'; {nearest(name, drawn)}", code="unknown")


def _by_name(results: Results) -> dict[str, Figure]:
    figures = draw(results.judged, analyse(results))
    return {re.sub(r"\W+", "_", figure.name): figure for figure in figures}
