"""Effect plots: forest plots of contrasts, and score plots of paired runs."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from paribus import numbers
from paribus.analysis import Analysis
from paribus.decision import word_of
from paribus.decision.evidence import gather
from paribus.report.figures.style import (
    LABEL_CHARACTERS,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    chart_of,
    figure_name,
    in_lines,
    names_below,
    panels,
    rounded,
    value_axis,
    zero_line,
)
from paribus.study import Endpoint, Study

ROW_PIXELS, LINE_PIXELS = 30, 14  # of a row with one line, and of each line of a long name
LABEL_LINES = 3
PADDING = 12  # pixels at both ends of the axis
SHAPES = {
    "BETTER": "circle",
    "WORSE": "triangle-down",
    "SAME": "square",
    "UNRESOLVED": "diamond",
    "DESCRIPTIVE": "cross",
    "INVALID": "triangle-up",
}


def forest_name(study: Study, endpoint: Endpoint) -> str:
    """Return the name of a primary endpoint's forest plot."""
    return "forest" if endpoint is study.primary else f"forest-{endpoint.metric}"


def forest(analysis: Analysis, endpoint: Endpoint) -> Figure | None:
    """Create a forest plot of a primary endpoint: changes, intervals, margin and verdict labels."""
    study, metric = analysis.study, analysis.metrics[endpoint.metric]
    sign = -1 if metric.better == "higher" else 1
    rows = _forest_rows(analysis, endpoint.metric)
    rows.sort(key=lambda row: (row["mean"] is None, sign * (row["mean"] or 0.0)))
    if not rows or rows[0]["mean"] is None:
        return None
    name, margin = forest_name(study, endpoint), metric.displayed(endpoint.margin or 0)
    left, right = ("worse", "better") if metric.better == "higher" else ("better", "worse")
    stated = f"\N{PLUS-MINUS SIGN}{metric.stated_text(endpoint.margin or 0)}"
    change = f"change in {metric.change_unit}" if metric.change_unit not in ("", "1") else "change"
    ways = f"\N{LEFTWARDS ARROW} {left} | {right} \N{RIGHTWARDS ARROW}"
    x = {
        "title": [ways, change, *([f"grey: {stated},", "too small to matter"] if margin else [])],
        "axis": alt.Axis(tickCount=4, labelOverlap="greedy", labelSeparation=8),
        "scale": alt.Scale(nice=False, zero=True, padding=PADDING),
    }
    margins = alt.InlineData(values=[{"from": -margin, "to": margin}])
    band = alt.Chart(margins).mark_rect(color=TEXT, opacity=0.1)
    layers: list[Any] = [band.encode(x=alt.X("from:Q", **x), x2=alt.X2("to:Q"))]
    order = [row["arm"] for row in rows]
    labels = alt.Axis(labelExpr=in_lines(order, LABEL_CHARACTERS, LABEL_LINES))
    base = chart_of(name).encode(
        y=alt.Y("arm:N", title=None, sort=order, axis=labels),
        color=arm_colour(study, legend=False),
    )
    rules = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **x), x2=alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=80, opacity=1).encode(x=alt.X("mean:Q", **x))
    words = [word for word in SHAPES if any(row["word"] == word for row in rows)]
    # Beside long names of arms no three fit.
    legend = {"symbolFillColor": TEXT, "columns": 2, "labelLimit": 0}
    scale = alt.Scale(domain=list(SHAPES), range=list(SHAPES.values()))
    shape = alt.Shape("word:N", title=None, scale=scale, legend=alt.Legend(values=words, **legend))
    layers += [zero_line(across=False), rules, points.encode(shape=shape)]
    title = f"Change of {metric.short_title}"
    caption = (
        f"Each arm minus its reference, with its unadjusted "
        f"{numbers.level(study.inference.alpha)} interval. The shape indicates the verdict."
    )
    lines = min(LABEL_LINES, 1 + max(map(len, order)) // LABEL_CHARACTERS)
    height = max(ROW_PIXELS, LINE_PIXELS * lines) * len(rows)
    chart = alt.layer(*layers).properties(width=WIDTH, height=height)
    return Figure(name, "endpoints", title, caption, chart, rows)


def _forest_rows(analysis: Analysis, metric: str) -> list[dict[str, Any]]:
    called, rows = analysis.study.called, []
    for contrast in analysis.contrasts:
        if contrast.metric != metric:
            continue
        says, ends = contrast.decided, {"mean": None, "low": None, "high": None}
        if says is not None:
            interval = (says.interval.low, says.interval.high)
            is_bounded = says.has_interval and all(map(math.isfinite, interval))
            shown = (says.mean, *(interval if is_bounded else (says.mean,) * 2))
            ends = {
                key: rounded(contrast.declared.displayed(value))
                for key, value in zip(ends, shown, strict=True)
            }
        word = word_of(gather(analysis, contrast))
        rows.append({"arm": called[contrast.arm], **ends, "word": word})
    return rows


def seed_pairs(analysis: Analysis, metric: str) -> Figure | None:
    """Plot scores with one panel per contrast and, per seed, a line from reference to arm.

    Unpaired runs are plotted as points.
    """
    study, called, declared = analysis.study, analysis.study.called, analysis.metrics[metric]
    pairs = [_pair_rows(analysis, metric, *pair) for pair in study.contrasts]
    rows = [row for own in pairs for row in own]
    if not rows:
        return None
    base = chart_of(None).encode(
        x=names_below(called.values(), "arm", sort=alt.EncodingSortField("side")),
        y=value_axis("value:Q", declared.title),
    )
    drawn: Any = base.mark_circle(size=42, opacity=1).encode(
        color=arm_colour(study, legend=False), detail=alt.Detail("seed:N")
    )
    title, caption = f"{declared.label[0].upper()}{declared.label[1:]}", "Each point is a run."
    if study.is_paired:
        slopes = base.mark_line(color=TEXT, opacity=0.45, strokeWidth=1.1)
        drawn = alt.layer(slopes.encode(detail=alt.Detail("seed:N")), drawn)
        caption = "Each line connects the reference and the arm of a seed."
    name, parts = f"pairs-{figure_name(metric)}", list(dict.fromkeys(row["part"] for row in rows))
    return Figure(name, "seeds", title, caption, panels(drawn, parts, name, own="x"), rows)


def _pair_rows(analysis: Analysis, metric: str, arm: str, reference: str) -> list[dict[str, Any]]:
    """Return two rows per pair: one for the reference and one for the arm."""
    study, called, declared = analysis.study, analysis.study.called, analysis.metrics[metric]
    theirs, ours = (analysis.summary(side, metric).values for side in (reference, arm))
    if declared.of_pair:  # the value of an arm is the ratio: 1 for its reference
        theirs = dict.fromkeys(ours, 1.0)
    seeds = [seed for seed in ours if seed in theirs] if study.is_paired else study.seeds
    versus = "" if reference == study.baseline else f" against {called[reference]}"
    head, digits = {"part": f"{called[arm]}{versus}", "of": called[arm]}, declared.digits + 2
    return [
        head
        | {"arm": called[name], "side": side, "seed": seed}
        | {"value": declared.displayed(round(values[seed], digits))}
        for seed in seeds
        for side, (name, values) in enumerate(((reference, theirs), (arm, ours)))
        if seed in values
    ]
