"""Effects of arms on the endpoints: every contrast with its interval, and every pair of seeds."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np

from paribus import numbers
from paribus.analysis import Analysis, Contrast
from paribus.report.figures.style import (
    LABEL_CHARACTERS,
    MOST_PANELS,
    PANEL,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    figure_name,
    hover,
    in_lines,
    panels,
    rounded,
    wrapped,
)
from paribus.report.tables import STATES, state_of
from paribus.study import Endpoint, Study

ROW_PIXELS, BROKEN_ROW_PIXELS = 26, 32  # of a name in one line, and in two
SIDE_CHARACTERS, SIDE_LINES = 12, 3  # of a name below a panel
MOST_NAMED, MOST_TOLD = 2, 8  # contrasts in a title, and in a caption
MOST_PAIRS = 60  # lines of one contrast
PADDING = 0.05  # of the axis, at both ends
SHAPES = ("circle", "square", "diamond", "cross")


def forest_name(study: Study, endpoint: Endpoint) -> str:
    """Return the name of the figure of every contrast on a primary endpoint."""
    return "forest" if endpoint is study.primary else f"forest-{endpoint.metric}"


def forest(analysis: Analysis, endpoint: Endpoint) -> Figure | None:
    """Return every contrast on a primary endpoint with its interval, the margin and the finding."""
    study, metric = analysis.study, analysis.metrics[endpoint.metric]
    contrasts = [c for c in analysis.contrasts if c.metric == endpoint.metric]
    sign = 1 if metric.better == "lower" else -1
    rows = sorted(_forest_rows(analysis, contrasts), key=lambda row: sign * row["mean"])
    if not rows:
        return None
    name, margin = forest_name(study, endpoint), metric.shown(contrasts[0].margin or 0)
    left, right = ("better", "worse") if metric.better == "lower" else ("worse", "better")
    change = f"change in {metric.change_unit}" if metric.change_unit not in ("", "1") else "change"
    title = f"\N{LEFTWARDS ARROW} {left} | {change} | {right} \N{RIGHTWARDS ARROW}"
    ends = [margin, -margin, *(row[end] for row in rows for end in ("low", "high"))]
    low, high = min(ends), max(ends)
    room = PADDING * (high - low)
    x = {"title": title, "axis": alt.Axis(tickCount=5, labelOverlap="greedy")}
    x["scale"] = alt.Scale(domain=[low - room, high + room], nice=False)
    stated = f"\N{PLUS-MINUS SIGN}{metric.stated_text(endpoint.margin or 0)}"
    margins = alt.Chart(alt.InlineData(values=[{"from": -margin, "zero": 0, "to": margin}]))
    band = margins.mark_rect(color=TEXT, opacity=0.1, tooltip=None)
    layers: list[Any] = [band.encode(x=alt.X("from:Q", **x), x2=alt.X2("to:Q"))]
    if margin:
        label = margins.mark_text(
            text=f"within {stated}: too small to matter",
            **{"color": TEXT, "opacity": 0.75, "fontSize": 10, "baseline": "bottom"},
            tooltip=None,
        )
        layers.append(label.encode(x=alt.X("zero:Q", **x), y=alt.value(-3)))
    order = [row["arm"] for row in rows]
    labels = alt.Axis(labelExpr=in_lines(order, LABEL_CHARACTERS))
    n = alt.Tooltip("n:Q", title="seed pairs" if study.is_paired else "runs of the smaller arm")
    told = hover("arm:N", "against:N", alt.Tooltip("mean:Q", format="+.4g"), "interval:N", n)
    chart = alt.Chart(alt.NamedData(name))
    base = chart.encode(
        y=alt.Y("arm:N", title=None, sort=order, axis=labels),
        color=arm_colour(study, legend=False),
        tooltip=told,
    )
    rules = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **x), x2=alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=80, opacity=1).encode(x=alt.X("mean:Q", **x))
    zero = chart.mark_rule(color=TEXT, opacity=0.5, tooltip=None).encode(x=alt.datum(0))
    layers += [zero, rules, points.encode(shape=_state_shapes(rows))]
    tall = any(len(arm) > LABEL_CHARACTERS for arm in order)
    height = (BROKEN_ROW_PIXELS if tall else ROW_PIXELS) * len(rows) + 10
    drawn = alt.layer(*layers).properties(width=WIDTH, height=height)
    level = numbers.level(study.inference.alpha)
    band_text = f"The grey band is the margin of {stated}." if margin else "No margin was stated."
    changes = [
        f"{row['arm']} {numbers.signed(row['mean'], metric.shown_change_digits)}" for row in rows
    ]
    spans = [f"{text} ({row['interval']})" for text, row in zip(changes, rows, strict=True)]
    caption = (
        f"Change of {metric.label}, each arm minus its reference, with its unadjusted {level} "
        f"interval. {band_text} Shapes go by Holm's p. {'; '.join(spans[:MOST_TOLD])}"
        f"{' ...' if len(rows) > MOST_TOLD else '.'}"
    )
    heading = f"Change of {metric.short_title}"
    heading += f": {', '.join(changes)}" if len(rows) <= MOST_NAMED else ""
    return Figure(name, "endpoints", heading, caption, drawn, rows, stretch=False)


def _forest_rows(analysis: Analysis, contrasts: list[Contrast]) -> list[dict[str, Any]]:
    called, rows = analysis.study.called, []
    for contrast in contrasts:
        says = contrast.decided
        if says is None:
            continue
        ends = says.interval
        bounded = says.has_interval and math.isfinite(ends.low) and math.isfinite(ends.high)
        low, high = (ends.low, ends.high) if bounded else (says.mean, says.mean)
        mean, low, high = map(contrast.declared.shown, (says.mean, low, high))
        interval = f"{low:+.4g} to {high:+.4g}" if bounded else "unbounded"
        rows.append(
            {
                "arm": called[contrast.arm],
                "against": called[contrast.reference],
                "metric": contrast.declared.short_title,
                **{"mean": rounded(mean), "low": rounded(low), "high": rounded(high)},
                "interval": interval if says.has_interval else "no interval",
                "n": says.n,
                "state": state_of(contrast, analysis.study.inference.alpha),
            }
        )
    return rows


def _state_shapes(rows: list[dict[str, Any]]) -> alt.Shape:
    """Return the shape of a mean by what its test found (`state` of `rows`)."""
    states = {row["state"] for row in rows}
    shown = [state for state in STATES if state in states]
    scale = alt.Scale(domain=list(STATES), range=list(SHAPES))
    # Beside long names of arms no three fit.
    legend = alt.Legend(
        values=shown, symbolFillColor=TEXT, columns=min(len(shown), 2), labelLimit=0
    )
    return alt.Shape("state:N", title=None, scale=scale, legend=legend)


def pairs_name(metric: str) -> str:
    """Return the name of the figure of a metric's seed pairs."""
    return f"pairs-{figure_name(metric)}"


def seed_pairs(analysis: Analysis, metric: str) -> Figure | None:
    """Return every seed as a line from its reference to its arm, in a panel for each contrast.

    Where runs are not paired, every run is a point.
    """
    study, called, declared = analysis.study, analysis.study.called, analysis.metrics[metric]
    pairs, rows = _pair_rows(analysis, metric)
    if not rows:
        return None
    labels = in_lines(called.values(), SIDE_CHARACTERS, SIDE_LINES)
    axis = alt.Axis(labelAngle=0, labelLimit=PANEL // 2, labelExpr=labels)
    base = alt.Chart().encode(  # the facet has the data
        x=alt.X("arm:N", title=None, sort=alt.EncodingSortField("side"), axis=axis),
        y=alt.Y(
            "value:Q",
            title=wrapped(declared.title),
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=5),
        ),
    )
    value = alt.Tooltip("value:Q", format=f".{declared.shown_digits}f")
    drawn = base.mark_circle(size=42, opacity=1).encode(
        color=arm_colour(study, legend=False), tooltip=hover("arm:N", "seed:N", value)
    )
    if study.is_paired:
        lines = base.mark_line(color=TEXT, opacity=0.45, strokeWidth=1.1)
        drawn = alt.layer(lines.encode(detail=alt.Detail("seed:N")), drawn)
    facet = alt.Facet("contrast:N", title=None, sort=[called[arm] for arm, _ in pairs])
    name, above = pairs_name(metric), {row["contrast"] for row in rows}
    chart = panels(drawn, facet, name, own="x", labels=above)
    title = f"{declared.label[0].upper()}{declared.label[1:]}"
    caption = f"{title}: every run is a point."
    if study.is_paired:
        rises = []
        for arm, _ in pairs:
            paired = analysis.contrast(arm, metric).paired
            deltas = [pair.delta for pair in paired.pairs] if paired else []
            above_zero = sum(delta > 0 for delta in deltas)
            rises.append(f"{called[arm]} {above_zero} of {len(deltas)}")
        caption = (
            f"{title}: every seed is a line from its reference to its arm. Rises by arm: "
            f"{', '.join(rises[:MOST_TOLD])}{' ...' if len(rises) > MOST_TOLD else '.'}"
        )
    largest = max(analysis.summary(arm, metric).n for arm, _ in pairs)
    if largest > MOST_PAIRS:
        caption += f" {MOST_PAIRS} of {largest:,} pairs are drawn, at even ranks by their change."
    if left := len(study.contrasts) - len(pairs):
        caption += f" {numbers.plural(left, 'contrast')} without a pair, or beyond {MOST_PANELS} "
        caption += "panels, are in the tables only."
    wide = len(pairs) > MOST_NAMED
    return Figure(name, "endpoints", title, caption, chart, rows, panel=PANEL, wide=wide)


def _pair_rows(
    analysis: Analysis, metric: str
) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """Return contrasts that have a pair, at most MOST_PANELS, and a row for each side of it."""
    study, called, declared = analysis.study, analysis.study.called, analysis.metrics[metric]
    values = {arm: analysis.summary(arm, metric).values for arm in study.arms}
    pairs = [
        (arm, reference)
        for arm, reference in study.contrasts
        if values[arm].keys() & values[reference].keys()
        or (not study.is_paired and values[arm] and values[reference])
    ][:MOST_PANELS]
    relative, rows = declared.of_pair, []
    for arm, reference in pairs:
        versus = "" if reference == study.baseline else f" against {called[reference]}"
        ours, theirs = values[arm], values[reference]
        seeds = [seed for seed in ours if seed in theirs] if study.is_paired else study.seeds
        if study.is_paired and len(seeds) > MOST_PAIRS:
            change = {seed: ours[seed] - (0 if relative else theirs[seed]) for seed in seeds}
            ranked = sorted(seeds, key=change.__getitem__)
            places = np.linspace(0, len(ranked) - 1, MOST_PAIRS).round().astype(int)
            seeds = [ranked[place] for place in places]
        for seed in seeds:
            for side, name in enumerate((reference, arm)):
                is_one = relative and not side  # a ratio of a pair is 1 for its reference
                if not is_one and seed not in values[name]:
                    continue
                value = 1.0 if is_one else round(values[name][seed], declared.digits + 2)
                rows.append(
                    {
                        "contrast": f"{called[arm]}{versus}",
                        **{"arm": called[name], "of": called[arm], "side": side, "seed": seed},
                        "value": value if is_one else declared.shown(value),
                    }
                )
    return pairs, rows
