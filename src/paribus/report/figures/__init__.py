"""Every figure, defined once: the page shows it interactively, the PDF prints it."""

from __future__ import annotations

from collections.abc import Iterable

from paribus.analysis import Analysis
from paribus.drawing import HELD_OUT
from paribus.report.figures.contrasts import (
    forest,
    forest_name,
    pairs_name,
    seed_pairs,
)
from paribus.report.figures.figure_rows import Curves
from paribus.report.figures.over_training import all_series, all_trends, contrast_along, loss_curves
from paribus.report.figures.style import ARM_COLOURS, Figure, colours
from paribus.report.figures.trained_models import (
    all_depths,
    all_heldout,
    quantile_columns,
    tasks,
    throughput,
)
from paribus.report.figures.tuning_curves import tuning_figures
from paribus.results import Results

__all__ = [
    "ARM_COLOURS",
    "HELD_OUT",
    "Figure",
    "colours",
    "draw",
    "forest",
    "forest_name",
    "pairs_name",
    "quantile_columns",
    "seed_pairs",
]


def draw(results: Results, analysis: Analysis) -> list[Figure]:
    """Return every figure that the records have data for, in the order of a report."""
    endpoints = [forest(analysis, endpoint) for endpoint in results.study.judged]
    endpoints += [seed_pairs(analysis, endpoint.metric) for endpoint in results.study.endpoints]
    curves = Curves(results)
    figures = [
        *tuning_figures(analysis),
        *endpoints,
        loss_curves(results),
        contrast_along(analysis),
        *all_trends(curves),
        *all_series(results),
        *all_depths(curves),
        *all_heldout(results),
        tasks(results),
        throughput(results),
    ]
    return _named_apart(figure for figure in figures if figure is not None)


def _named_apart(figures: Iterable[Figure]) -> list[Figure]:
    """Return figures without those whose name, a file's, is that of an earlier one."""
    by_name: dict[str, Figure] = {}
    for figure in figures:
        by_name.setdefault(figure.name, figure)
    return list(by_name.values())
