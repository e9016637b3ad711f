"""The figure of a finding that the output matrix changes: along training budget, by matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from paribus.report.figures import Figure
from paribus.report.figures.style import TEXT, rounded
from paribus.report.paper.finding_by_setting import (
    BEST_OF_TRIED,
    BY_BUDGET,
    BY_OUTPUT_MATRIX,
    Point,
    Trend,
    trends,
)
from paribus.report.paper.material import Material

TURNED = "by-output-matrix"
PANEL, PANEL_HEIGHT, ROOM = 140, 120, 50
LEGEND_TITLE = "output matrix"
BESIDE = 2  # panels in a column; more go across the page
# Okabe & Ito 2008, and a shape for prints without colour.
LOOKS = {
    "is the token matrix": ("#D55E00", "circle"),
    "is its own": ("#0072B2", "square"),
}


def by_output_matrix(studies: Sequence[Material]) -> Figure | None:
    """Every verdict on a treatment whose finding the output matrix changes, or that was tried at
    several lengths with one of its own alone, against the iterations that it was trained for; None
    where there is none of the former, or where all have as many iterations.

    Of tuned studies alone where there are any; their settings share all but output matrix, budget
    and warmup.
    """
    every = trends(studies)
    found = [trend for trend in every if trend.tuned] or every
    turned = [one for one in found if one.axis is BY_OUTPUT_MATRIX and one.changes]
    treatments = {one.points[0].one.treatment for one in turned}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for trend in turned:
        treatment = trend.points[0].one.treatment
        called = min((point.one.called for point in trend.points), key=len)
        alike = [
            one
            for one in found
            if one.axis in (BY_OUTPUT_MATRIX, BY_BUDGET)
            and one.points[0].one.treatment == treatment
            and one.same_steps
        ]
        for point in (point for one in alike for point in one.points):
            rows.setdefault((called, point.material.name), _row(called, point))
    for trend in found:
        first = trend.points[0]
        if trend.axis is BY_BUDGET and trend.same_steps and _is_own(trend):
            called = first.one.called
            for point in trend.points if first.one.treatment not in treatments else ():
                rows.setdefault((called, point.material.name), _row(called, point))
    lengths = {row["iterations"] for row in rows.values()}
    if not turned or len(lengths) < 2:
        return None
    points = [point for trend in turned for point in trend.points]
    declared = points[0].one.contrast.declared
    label = " or ".join(dict.fromkeys(point.one.contrast.declared.label for point in points))
    unit = f" ({declared.change_unit})" if declared.change_unit else ""
    caption = (
        f"Change of {label} by the iterations of a study and by its output matrix"
        f"{f', {BEST_OF_TRIED}' if all(one.tuned for one in turned) else ''}, with intervals "
        "that are not adjusted; Holm's p decides. A point is a study; studies of one length stand "
        "side by side, in the order of the table of answers, and each panel has a scale of its own."
    )
    chart = _chart(f"change of {label}{unit}")
    return Figure(
        TURNED,
        "endpoints",
        "By output matrix",
        caption,
        chart,
        list(rows.values()),
        panel=PANEL,
        room=ROOM,
        wide=len({row["treatment"] for row in rows.values()}) > BESIDE,
    )


def _is_own(trend: Trend) -> bool:
    """Whether every point has an output matrix of its own."""
    settings = (p.material.study.setting(p.one.contrast.reference) for p in trend.points)
    return not any(setting.model.head.tied for setting in settings)


def _row(called: str, point: Point) -> dict[str, Any]:
    decided = point.one.contrast.decided
    assert decided is not None  # a trend has no others
    setting = point.material.study.setting(point.one.contrast.reference)
    shared, own = LOOKS
    return {
        "treatment": called,
        "study": point.material.name,
        "iterations": setting.iterations,
        "matrix": shared if setting.model.head.tied else own,
        "mean": rounded(decided.mean),
        "low": rounded(decided.interval.low),
        "high": rounded(decided.interval.high),
    }


def _chart(title: str) -> Any:
    legend = alt.Legend(title=LEGEND_TITLE, orient="top", symbolOpacity=1, columns=2, labelLimit=0)
    colour = alt.Color(
        "matrix:N",
        scale=alt.Scale(domain=list(LOOKS), range=[colour for colour, _ in LOOKS.values()]),
        legend=legend,
    )
    shape = alt.Shape(
        "matrix:N",
        scale=alt.Scale(domain=list(LOOKS), range=[shape for _, shape in LOOKS.values()]),
        legend=legend,
    )
    axis = alt.Axis(labelAngle=0, format=",")
    base = alt.Chart().encode(
        x=alt.X("iterations:O", title="iterations", axis=axis),
        xOffset=alt.XOffset("study:N", sort=None),
    )
    ticks = alt.Axis(tickCount=5)
    lines = base.mark_rule(strokeWidth=1.6).encode(
        y=alt.Y("low:Q", title=title, axis=ticks), y2=alt.Y2("high:Q"), color=colour
    )
    means = base.mark_point(filled=True, size=40, opacity=1).encode(
        y=alt.Y("mean:Q", title=title, axis=ticks), color=colour, shape=shape
    )
    zero = alt.Chart().mark_rule(color=TEXT, opacity=0.5).encode(y=alt.datum(0))
    return (
        alt.layer(zero, lines, means)
        .properties(height=PANEL_HEIGHT)
        .facet(
            facet=alt.Facet(
                "treatment:N",
                title=None,
                sort=None,
                header=alt.Header(labelLimit=0, labelFontSize=9),
            ),
            columns=2,
            data=alt.NamedData(TURNED),
        )
        .resolve_scale(y="independent")
    )
