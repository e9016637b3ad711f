"""Every figure, defined once: the page shows it interactively, the paper prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paribus.analysis import Analysis
from paribus.drawing import HELD_OUT
from paribus.report.figures.contrasts import forest, forest_of_all, seed_pairs
from paribus.report.figures.cost import throughput
from paribus.report.figures.depth import all_depths, quantile_columns
from paribus.report.figures.evaluations import all_heldout, tasks
from paribus.report.figures.figure_rows import Curves, task_accuracy
from paribus.report.figures.loss_curves import contrast_along, loss_curves
from paribus.report.figures.style import ARM_COLOURS, Figure, colours, names
from paribus.report.figures.trends import all_trends, trend
from paribus.report.figures.tuning_curves import tuning_figures
from paribus.results import Results

__all__ = [
    "ARM_COLOURS",
    "Figure",
    "colours",
    "columns_drawn",
    "draw",
    "forest",
    "names",
    "seed_pairs",
    "trend",
]


def draw(results: Results, analysis: Analysis) -> list[Figure]:
    """Every figure that the records have data for, in the order of a report."""
    endpoints = [forest(analysis, endpoint) for endpoint in results.study.judged]
    endpoints += [seed_pairs(analysis, endpoint.metric) for endpoint in results.study.endpoints]
    endpoints.append(forest_of_all(analysis))
    curves = Curves(results)
    found = [
        *tuning_figures(analysis),
        *endpoints,
        loss_curves(results),
        contrast_along(analysis),
        *all_trends(curves),
        *all_depths(curves),
        *all_heldout(results),
        tasks(results, task_accuracy(results)),
        throughput(results),
    ]
    return _named_apart(figure for figure in found if figure is not None)


def columns_drawn(results: Results) -> Iterator[str]:
    """All columns of steps and probes that figures read."""
    for drawing in results.drawings:
        if drawing.how in HELD_OUT:
            continue
        yield from drawing.columns
        if drawing.how == "spread":
            for columns in quantile_columns(drawing).values():
                yield from columns.values()


def _named_apart(figures: Iterable[Figure]) -> list[Figure]:
    """Without those whose name is that of an earlier one: names are those of files."""
    found: dict[str, Figure] = {}
    for figure in figures:
        found.setdefault(figure.name, figure)
    return list(found.values())
