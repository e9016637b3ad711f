"""Figures of finished studies for notebooks, as Altair charts.

Figures of the page go by their names, with `_` in place of other signs.
"""

from __future__ import annotations

import re
from typing import Any

from paribus.analysis import analyse
from paribus.errors import ParibusError, nearest
from paribus.report.figures import Figure, draw
from paribus.results import Results


def names(results: Results) -> list[str]:
    """Return the figures that the records have data for, in the order of the page."""
    return list(_drawn(results))


def plot(results: Results, name: str = "forest") -> Any:
    """Return a figure as an Altair chart: by its name, the beginning of it, or an endpoint's name.

    Raises ParibusError for an unknown name.
    """
    drawn, wanted = _drawn(results), re.sub(r"\W+", "_", name)
    begun = [label for label in drawn if wanted and label.startswith(wanted)]
    for label in (wanted, f"pairs_{wanted}", *begun):
        if label in drawn:
            return drawn[label].with_data()
    raise ParibusError(f"there is no figure '{name}': {nearest(wanted, drawn)}", code="unknown")


def _drawn(results: Results) -> dict[str, Figure]:
    judged = results.standing.judged
    return {re.sub(r"\W+", "_", figure.name): figure for figure in draw(judged, analyse(results))}
