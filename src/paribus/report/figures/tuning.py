"""Tuning plot: scores of all candidates, and the best candidate of each arm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt

from paribus.analysis import Analysis, Tuned
from paribus.report.cells import key_text
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    WIDTH,
    Figure,
    Row,
    arm_colour,
    arm_dash,
    chart_of,
    figure_name,
    panels,
    rounded,
    value_axis,
)
from paribus.study import LEARNING_RATE, Candidate, values_text
from paribus.study.tuning import Value


def _axis_key(candidate: Candidate) -> str:
    """Return the tuned key for the horizontal axis: the learning rate if tuned, else the first."""
    return LEARNING_RATE if LEARNING_RATE in candidate else next(iter(candidate))


def tuning_curves(analysis: Analysis) -> Figure | None:
    """Plot the tuning scores of all candidates and arms, or return None if nothing was tuned."""
    study, tuned = analysis.study, analysis.tuned
    if tuned is None:
        return None
    key = _axis_key(tuned.candidates[0])
    rows: list[Row] = []
    for arm in study.arms:
        rows += _score_rows(analysis, tuned, arm, key)
    if len({row["part"] for row in rows}) == len(tuned.candidates):  # no two share a panel
        rows = [row | {"part": ""} for row in rows]
    scores = [row["value"] for row in rows if "value" in row]
    if not scores:
        return None
    labels = list(dict.fromkeys(row["part"] for row in rows))
    is_single, name = len(labels) == 1, f"tuning-{figure_name(key.rpartition('.')[2])}"
    base = chart_of(name if is_single else None).encode(
        x=_axis([candidate[key] for candidate in tuned.candidates], key_text(key)),
        color=arm_colour(study),
    )
    placed = base.encode(y=value_axis("value:Q", tuned.metric.title))
    dots = placed.mark_circle(size=26, opacity=0.55).encode(detail=alt.Detail("seed:N"))
    lines = placed.mark_line(strokeWidth=2.2).encode(strokeDash=arm_dash(study))
    marks = placed.mark_point(shape="diamond", size=170, strokeWidth=2.4, opacity=1)
    layers = [
        _only(dots, "seed"),
        _only(lines, "mean"),
        _only(marks, "chosen"),
    ]
    caption = "Dots: tuning seeds. Lines: means over seeds. Diamonds: best value tried."
    chart = alt.layer(*layers)
    if is_single:
        chart = chart.properties(width=WIDTH, height=HEIGHT)
    else:
        chart = panels(chart, labels, name, own="x")
    title = f"Scores by {' and '.join(map(key_text, tuned.candidates[0]))}"
    return Figure(name, "tuning", title, caption, chart, rows, log=min(scores) > 0)


def _score_rows(analysis: Analysis, tuned: Tuned, arm: str, key: str) -> list[Row]:
    rows: list[Row] = []
    for point in tuned.points_of(arm):
        values = dict(tuned.values_of(point))
        head = {"arm": analysis.study.called[arm]}
        head |= {"at": values.pop(key), "part": values_text(values) if values else ""}
        kinds: list[Row] = [
            {"kind": "seed", "seed": seed, "value": value} for seed, value in point.values.items()
        ]
        kinds.append({"kind": "mean", "value": point.mean})
        if point.chosen:
            kinds.append({"kind": "chosen", "value": point.mean})
        rows += [
            head | row | {"value": rounded(tuned.metric.displayed(row["value"]))}
            for row in kinds
            if math.isfinite(row["value"])
        ]
    return rows


def _axis(values: Sequence[Value], title: str) -> alt.X:
    """Create the horizontal axis of the tuned values.

    The scale is logarithmic for a wide range of positive numbers, and nominal for text.
    """
    tried = list(dict.fromkeys(values))
    numeric = [value for value in tried if not isinstance(value, (bool, str))]
    if len(numeric) < len(tried):
        return alt.X("at:N", title=title, sort=[str(value) for value in tried])
    kind = "log" if min(numeric) > 0 and max(numeric) >= LOG_FROM * min(numeric) else "linear"
    look = {"labelOverlap": "greedy", "tickCount": 6, "labelSeparation": 4}
    # On a linear axis this format would write 100 as 1e+2.
    axis = alt.Axis(format="~g" if kind == "log" else alt.Undefined, **look)  # type: ignore
    axis.values = sorted(numeric)
    zero = alt.Undefined if kind == "log" else False  # a logarithmic scale has no zero
    scale = alt.Scale(type=kind, zero=zero, nice=False, padding=14)
    return alt.X("at:Q", title=title, scale=scale, axis=axis)


def _only(chart: alt.Chart, kind: str) -> alt.Chart:
    """Filter a chart's data to rows of the given kind."""
    return chart.transform_filter(f"datum.kind == '{kind}'")
