"""The figure that a paper of several studies turns on: every contrast, study by study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import altair as alt

from paribus.report.figures import Figure
from paribus.report.figures.style import TEXT, rounded
from paribus.report.paper.judged import SHORT, judged, judged_on
from paribus.report.paper.material import Material
from paribus.report.words import listed

OVERVIEW = "overview"
ROW_PIXELS, LABELS = 13, 190
MANY_TIMES = 8
# More rows than this are taller than what a column has left beside the table of answers: such a
# figure goes across the page, two studies beside each other.
MOST_IN_A_COLUMN = 24
# Okabe & Ito 2008, and a shape for prints without colour; the order is that of the legend.
LOOKS = {
    "worse": ("#D55E00", "triangle-up"),
    "better": ("#0072B2", "triangle-down"),
    "within margin": ("#009E73", "square"),
    "open": ("#7a7a7a", "circle"),
    "described": ("#7a7a7a", "cross"),
    "not judged": ("#7a7a7a", "stroke"),
}


def overview(studies: Sequence[Material]) -> Figure | None:
    """Every contrast on the first endpoint that all studies judge; None where there is none."""
    first, *others = ([e.metric for e in one.study.judged] for one in studies)
    shared = [metric for metric in first if all(metric in other for other in others)]
    if not shared:
        return None
    rows = [row for one in studies for row in _rows(one, shared[0])]
    described = [row for row in rows if row["finding"] == SHORT["described"]]
    # Wide intervals of very few seeds would take the room of those that decide something.
    rows = [row for row in rows if row not in described] or described
    if not rows:
        return None
    declared = studies[0].analysis.metrics[shared[0]]
    unit = f" ({declared.change_unit})" if declared.change_unit else ""
    panels = list(dict.fromkeys(row["study"] for row in rows))
    wide = len(rows) > MOST_IN_A_COLUMN
    found = [j for one in studies for j in judged_on(judged(one), shared[0])]
    label = " or ".join(dict.fromkeys(one.contrast.declared.label for one in found))
    ends = _ends(rows)
    chart = _chart(rows, panels, f"change of {label}{unit}", ends, wide=wide)
    caption = (
        f"Change of {label} in every study that has pairs, each arm minus its reference at the "
        "same seed, with intervals of the test that decides, which are not adjusted: Holm's p "
        "decides. Bands are the registered margins; shapes and colours say what was found, each "
        "study by its own registration and with its own error rate."
    )
    if any(row["low"] < ends[0] or row["high"] > ends[1] for row in rows):
        caption += " Intervals that would go on beyond it are cut off at its edge."
    left = dict.fromkeys(row["study"] for row in described if row not in rows)
    if left:
        caption += f" What is described only is left out ({listed(list(left))})."
    return Figure(
        OVERVIEW,
        "endpoints",
        "Every study",
        caption,
        chart,
        rows,
        panel=180,
        room=LABELS + 20,
        wide=wide,
    )


def _ends(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Of the axis: every mean, margin and interval, but for intervals that are MANY_TIMES as wide
    as the median; these would hide all others."""
    widths = [row["high"] - row["low"] for row in rows]
    most = MANY_TIMES * median(widths)
    within = [row for row, width in zip(rows, widths, strict=True) if width <= most]
    places = [row[key] for row in within for key in ("low", "high", "from", "to")]
    places += [row["mean"] for row in rows]
    room = 0.03 * (max(places) - min(places))
    return min(places) - room, max(places) + room


def _rows(material: Material, metric: str) -> list[dict[str, Any]]:
    rows = []
    for place, one in enumerate(judged(material)):
        says = one.contrast.decided
        if one.metric != metric or says is None:
            continue
        low, high = says.interval.low, says.interval.high
        bounded = math.isfinite(low) and math.isfinite(high)
        rows.append(
            {
                "study": material.name,
                "arm": one.called,
                "place": place,
                "mean": rounded(says.mean),
                "low": rounded(low if bounded else says.mean),
                "high": rounded(high if bounded else says.mean),
                "from": -(one.contrast.margin or 0),
                "to": one.contrast.margin or 0,
                "finding": SHORT[one.state],
            }
        )
    return rows


def _chart(
    rows: list[dict[str, Any]],
    panels: list[str],
    title: str,
    ends: tuple[float, float],
    *,
    wide: bool,
) -> Any:
    there = [finding for finding in LOOKS if any(row["finding"] == finding for row in rows)]
    beside = len(there) if wide else 2
    legend = alt.Legend(values=there, symbolOpacity=1, orient="top", title=None, columns=beside)
    domain = list(LOOKS)
    colour = alt.Color(
        "finding:N",
        scale=alt.Scale(domain=domain, range=[colour for colour, _ in LOOKS.values()]),
        legend=legend,
    )
    shape = alt.Shape(
        "finding:N",
        scale=alt.Scale(domain=domain, range=[shape for _, shape in LOOKS.values()]),
        legend=legend,
    )
    axis = alt.Axis(labelLimit=LABELS, labelFontSize=9, ticks=False, domain=False)
    base = alt.Chart().encode(
        y=alt.Y("arm:N", title=None, sort=alt.EncodingSortField("place"), axis=axis)
    )
    ticks = alt.Axis(tickCount=5, labelOverlap="greedy", labelSeparation=8)
    across = alt.Scale(domain=list(ends), nice=False)
    band = base.mark_bar(color=TEXT, opacity=0.1, height={"band": 1}).encode(
        x=alt.X("from:Q", title=title, axis=ticks, scale=across), x2=alt.X2("to:Q")
    )
    zero = alt.Chart().mark_rule(color=TEXT, opacity=0.5).encode(x=alt.datum(0))
    lines = base.mark_rule(strokeWidth=1.6, clip=True).encode(
        x=alt.X("low:Q", title=title, axis=ticks, scale=across), x2=alt.X2("high:Q"), color=colour
    )
    means = base.mark_point(filled=True, size=42, opacity=1).encode(
        x=alt.X("mean:Q", title=title, axis=ticks, scale=across), color=colour, shape=shape
    )
    header = alt.Header(
        labelOrient="top", labelAnchor="start", labelFontSize=10, labelLimit=360, labelPadding=3
    )
    return (
        alt.layer(band, zero, lines, means)
        .properties(height={"step": ROW_PIXELS})
        .facet(
            facet=alt.Facet("study:N", title=None, sort=panels, header=header),
            columns=1,
            data=alt.NamedData(OVERVIEW),
            # Labels differ in width: panels are aligned, and room is kept free for the widest.
            bounds="flush",
            spacing={"row": 26, "column": LABELS + 20},
        )
        .resolve_scale(y="independent")
    )
