"""What happens while training: losses, norms, moments and logits, step by step."""

from __future__ import annotations

from typing import Any

import altair as alt

from paribus.drawing import PART, Drawing
from paribus.report.figures.figure_rows import Curves, over_steps
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    PANEL,
    PANEL_HEIGHT,
    SMALL,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    figure_name,
    hover,
)
from paribus.results import Results
from paribus.study import Study

MOST_PANEL_ROWS = 3_000
MOST_PANELS = 12  # of one figure
LINES = "Thin lines are seeds, thick ones their mean, and the band reaches from the lowest seed to "
LINES += "the highest."


def all_trends(curves: Curves) -> list[Figure]:
    """Every trend that the records have: single columns first, then those of several parts."""
    drawings = curves.results.drawings
    drawn = [_trend(curves, one) for one in drawings if one.how == "trend"]
    drawn += [_panels(curves, one) for one in drawings if one.how == "panels"]
    return [figure for figure in drawn if figure is not None]


def trend(results: Results, column: str) -> Figure | None:
    """The trend of a column; None where no trial has it or nothing declares how it is drawn."""
    drawings = [d for d in results.drawings if (d.column, d.how) == (column, "trend")]
    return _trend(Curves(results), drawings[0]) if drawings else None


def _trend(curves: Curves, drawing: Drawing) -> Figure | None:
    rows = over_steps(curves, drawing.columns)
    if not rows:
        return None
    name, title = figure_name(drawing.column), drawing.title
    chart = _lines(curves.results.study, name, rows, drawing.axis)
    chart = chart.properties(width=WIDTH, height=HEIGHT)
    caption = f"{title} over training. {_about(rows)}"
    log, in_text = _positive(rows), drawing.in_text
    return Figure(name, drawing.section, title, caption, chart, rows, log=log, in_text=in_text)


def _panels(curves: Curves, drawing: Drawing) -> Figure | None:
    """Several parts over training, one panel each."""
    first = dict(list(drawing.columns.items())[:MOST_PANELS])
    rows = over_steps(curves, first, most_rows=MOST_PANEL_ROWS)
    if not rows:
        return None
    if len(first) == 1:
        rows = [row | {"part": next(iter(first.values()))} for row in rows]
    there = [part for part in first.values() if any(row["part"] == part for row in rows)]
    before = drawing.column.split(PART)[0].strip(" /")
    name, title = figure_name(before).replace("_", "-") + "-groups", drawing.title
    # The facet has the data; a layer with data of its own would draw all of it in every panel.
    chart = _lines(curves.results.study, None, rows, drawing.axis).properties(
        width=PANEL, height=PANEL_HEIGHT
    )
    facet = (
        chart.facet(
            facet=alt.Facet("part:N", title=None, sort=there), columns=3, data=alt.NamedData(name)
        )
        .resolve_scale(y="independent")
        .resolve_axis(x="independent")
    )
    caption = f"{title} over training, one panel for each part. {_about(rows)}"
    if len(drawing.parts) > MOST_PANELS:
        caption += f" The first {MOST_PANELS} of {len(drawing.parts)} parts are drawn."
    log = _positive(rows)
    shown = {"panel": PANEL, "wide": True, "in_text": drawing.in_text}
    return Figure(name, drawing.section, title, caption, facet, rows, log=log, **shown)


def _about(rows: list[dict[str, Any]]) -> str:
    if "value" in rows[0]:
        return LINES
    return "Lines are means over seeds, and the band reaches from the lowest seed to the highest."


def _values(rows: list[dict[str, Any]]) -> list[float]:
    return [row["value"] if "value" in row else row["low"] for row in rows]


def _axis(values: list[float]) -> alt.Axis:
    small = max(map(abs, values)) < SMALL or 0 < min(values) < SMALL
    return alt.Axis(tickCount=5, format=".0e") if small else alt.Axis(tickCount=5)


def _positive(rows: list[dict[str, Any]]) -> bool:
    return min(_values(rows)) > 0


def _lines(study: Study, name: str | None, rows: list[dict[str, Any]], unit: str) -> Any:
    values = _values(rows)
    log = _positive(rows) and max(values) > LOG_FROM * min(values)
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
    y = {"title": unit, "scale": scale, "axis": _axis(values)}
    few = 5 if name else 3  # in a panel
    axis = alt.Axis(tickCount=few, labelOverlap="greedy", labelFlush=True)
    one_step = len({row["step"] for row in rows}) == 1  # a line of one point draws nothing
    base = (alt.Chart(alt.NamedData(name)) if name else alt.Chart()).encode(
        x=alt.X("step:Q", title="training step", scale=alt.Scale(nice=False), axis=axis),
        color=arm_colour(study),
    )
    low, mean, high = ("min(value):Q", "mean(value):Q", "max(value)")
    layers = []
    if "value" in rows[0]:
        layers.append(
            base.mark_line(strokeWidth=0.7, opacity=0.45, point=one_step).encode(
                y=alt.Y("value:Q", **y),
                detail=alt.Detail("seed:N"),
                tooltip=hover("arm:N", "seed:N", "step:Q", alt.Tooltip("value:Q", format=".4g")),
            )
        )
    else:
        low, mean, high = ("low:Q", "mean:Q", "high")
    band = base.mark_area(opacity=0.13, tooltip=None).encode(y=alt.Y(low, **y), y2=alt.Y2(high))
    thick = base.mark_line(strokeWidth=2.2, point=one_step).encode(
        y=alt.Y(mean, **y), strokeDash=arm_dash(study), tooltip=hover("arm:N", "step:Q", mean)
    )
    return alt.layer(band, *layers, thick)
