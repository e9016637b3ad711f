"""Figures, each defined once for the interactive page and the PDF."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from paribus.analysis import Analysis, analyse
from paribus.drawing import Drawing
from paribus.errors import ParibusError, nearest
from paribus.report.figures.contrasts import forest, forest_name, seed_pairs
from paribus.report.figures.recorded import (
    against,
    contrast_along,
    curve,
    logged,
    loss_curves,
    over_training,
    parts,
    profile,
    spread,
)
from paribus.report.figures.style import ARM_COLOURS, Figure, colours
from paribus.report.figures.tuning import tuning_curves
from paribus.results import Results

__all__ = ["ARM_COLOURS", "Figure", "colours", "draw", "forest", "forest_name", "names", "plot"]

# How a drawing is drawn, in the order of a report.
DRAWN = {
    "trend": over_training,
    "panels": over_training,
    "spread": spread,
    "profile": profile,
    "curve": curve,
    "parts": parts,
    "against": against,
}


def draw(results: Results, analysis: Analysis) -> list[Figure]:
    """Return all figures for which the records have data, in the order of a report."""
    order = list(DRAWN)
    drawings = sorted(results.drawings, key=lambda drawing: order.index(drawing.how))
    figures = [
        tuning_curves(analysis),
        *(forest(analysis, endpoint) for endpoint in results.study.judged),
        *(seed_pairs(analysis, endpoint.metric) for endpoint in results.study.judged),
        loss_curves(results),
        contrast_along(analysis),
        *logged(results),
        *(_declared(results, drawing) for drawing in drawings),
    ]
    by_name: dict[str, Figure] = {}
    for figure in figures:
        if figure is not None:  # of two with one name, which is that of a file, the first
            by_name.setdefault(figure.name, figure)
    return list(by_name.values())


def _declared(results: Results, drawing: Drawing) -> Figure | None:
    figure = DRAWN[drawing.how](results, drawing)
    return figure and replace(figure, section=drawing.section, in_text=drawing.in_text)


def names(results: Results) -> list[str]:
    """Return the names of the figures for which the records have data, in the order of the page."""
    return list(_by_name(results))


def plot(results: Results, name: str = "forest") -> Any:
    """Return a figure as an Altair chart, by its name, a prefix of it, or an endpoint's name.

    Names are those of the page, with `_` in place of other punctuation. Raises ParibusError for an
    unknown name.
    """
    drawn, wanted = _by_name(results), re.sub(r"\W+", "_", name)
    begun = [label for label in drawn if wanted and label.startswith(wanted)]
    for label in (wanted, f"pairs_{wanted}", *begun):
        if label in drawn:
            return drawn[label].with_data()
    raise ParibusError(f"there is no figure '{name}': {nearest(wanted, drawn)}", code="unknown")


def _by_name(results: Results) -> dict[str, Figure]:
    figures = draw(results.judged, analyse(results))
    return {re.sub(r"\W+", "_", figure.name): figure for figure in figures}
