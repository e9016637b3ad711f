"""What trained models look like inside at the end of training: by depth, by token class."""

from __future__ import annotations

from typing import Any

import altair as alt

from paribus.drawing import PART, Drawing
from paribus.report.figures.figure_rows import Curves, is_large, over_seeds
from paribus.report.figures.style import (
    HEIGHT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    figure_name,
    hover,
    names,
    rounded,
)

STATISTICS = ("mean", "q05", "q25", "q75", "q95")


def all_depths(curves: Curves) -> list[Figure]:
    """Every figure of this kind that the records have: distributions, then profiles."""
    drawings = curves.results.drawings
    drawn = [_spread(curves, one) for one in drawings if one.how == "spread"]
    drawn += [_profile(curves, one) for one in drawings if one.how == "profile"]
    return [figure for figure in drawn if figure is not None]


def quantile_columns(drawing: Drawing) -> dict[str, dict[str, str]]:
    """The columns of each part of a spread, by statistic."""
    return {
        part: {s: f"{column.rpartition('/')[0]}/{s}" for s in STATISTICS}
        for column, part in drawing.columns.items()
    }


def _spread(curves: Curves, drawing: Drawing) -> Figure | None:
    """Distribution at the end of training in each part."""
    results = curves.results
    called = names(results.study)
    wanted = quantile_columns(drawing)
    last = curves.last([column for columns in wanted.values() for column in columns.values()])
    rows = []
    for arm, seed in results.trials:
        for part, columns in wanted.items():
            keys = [(arm, seed, column) for column in columns.values()]
            if all(key in last for key in keys):
                values = {s: rounded(last[key]) for s, key in zip(STATISTICS, keys, strict=True)}
                rows.append({"arm": called[arm], "seed": seed, "class": part} | values)
    if not rows:
        return None
    if is_large(results):
        rows = over_seeds(rows, *STATISTICS)
    name = figure_name(drawing.column.split(PART)[0].strip(" /")) + "-spread"
    classes = [part for part in wanted if any(row["class"] == part for row in rows)]
    y = {"title": drawing.axis, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X("class:N", title=None, sort=classes, axis=alt.Axis(labelAngle=0, labelLimit=90)),
        xOffset=alt.XOffset("arm:N", sort=[called[arm] for arm in results.study.arms]),
        color=arm_colour(results.study, line=False),
    )
    thin = base.mark_rule(strokeWidth=1.2, tooltip=None).encode(
        y=alt.Y("mean(q05):Q", **y), y2=alt.Y2("mean(q95)")
    )
    thick = base.mark_rule(strokeWidth=5, opacity=0.55, tooltip=None).encode(
        y=alt.Y("mean(q25):Q", **y), y2=alt.Y2("mean(q75)")
    )
    dots = base.mark_circle(size=40, opacity=1).encode(
        y=alt.Y("mean(mean):Q", **y), tooltip=hover("arm:N", "class:N", "mean(mean):Q")
    )
    title = drawing.title
    caption = (
        f"{title}, at the last step that has it: dots are means, thick bars reach from the "
        "first to the third quartile, thin ones from the 5th to the 95th percentile, "
        "each averaged over seeds."
    )
    chart = alt.layer(thin, thick, dots).properties(width=WIDTH, height=HEIGHT)
    in_text = drawing.in_text
    return Figure(name, drawing.section, title, caption, chart, rows, in_text=in_text)


def _profile(curves: Curves, drawing: Drawing) -> Figure | None:
    """All parts at the end of training, in their order."""
    results = curves.results
    called = names(results.study)
    parts, wanted = drawing.parts, drawing.columns
    last = curves.last(wanted)
    # The axis says "block" once.
    short = {p: p.removeprefix("block ") if "block" in drawing.across else p for p in parts}
    rows: list[dict[str, Any]] = [
        {
            "arm": called[arm],
            "seed": seed,
            "depth": short[wanted[column]],
            "order": parts.index(wanted[column]),
            "value": rounded(value),
        }
        for (arm, seed, column), value in last.items()
    ]
    if not rows:
        return None
    if is_large(results):
        rows = over_seeds(rows, "value")
    name = figure_name(drawing.column.split(PART)[0].strip(" /")).replace("_", "-") + "-depth"
    y = {"title": drawing.axis, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X(
            "depth:O",
            title=drawing.across or None,
            sort=alt.EncodingSortField("order", op="min"),
            axis=alt.Axis(labelAngle=0, labelOverlap="greedy"),
        ),
        color=arm_colour(results.study),
    )
    layers = []
    if not is_large(results):
        layers.append(
            base.mark_line(strokeWidth=0.7, opacity=0.45).encode(
                y=alt.Y("value:Q", **y), detail=alt.Detail("seed:N")
            )
        )
    thick = base.mark_line(strokeWidth=2.2, point=alt.OverlayMarkDef(size=30)).encode(
        y=alt.Y("mean(value):Q", **y),
        strokeDash=arm_dash(results.study),
        tooltip=hover("arm:N", "depth:O", alt.Tooltip("mean(value):Q", format=".4g")),
    )
    title = drawing.title
    thin = "" if is_large(results) else ", thin ones seeds"
    caption = f"{title}, at the end of training. Thick lines are means over seeds{thin}."
    chart = alt.layer(*layers, thick).properties(width=WIDTH, height=HEIGHT)
    in_text = drawing.in_text
    return Figure(name, drawing.section, title, caption, chart, rows, in_text=in_text)
