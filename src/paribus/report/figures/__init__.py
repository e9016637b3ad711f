"""Report figures, shared by the interactive page and the PDF."""

from __future__ import annotations

from dataclasses import replace

from paribus.analysis import Analysis
from paribus.drawing import Drawing
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
from paribus.report.figures.style import Figure, colours
from paribus.report.figures.tuning import tuning_curves
from paribus.results import Results

__all__ = ["Figure", "colours", "draw", "forest", "forest_name"]

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
    """Create all figures for which data are recorded, in the order of the report."""
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
    return [figure for figure in figures if figure is not None]


def _declared(results: Results, drawing: Drawing) -> Figure | None:
    figure = DRAWN[drawing.how](results, drawing)
    return figure and replace(figure, section=drawing.section, in_text=drawing.in_text)
