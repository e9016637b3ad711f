"""What trained models look like inside: norms by depth and token class, similarity by depth."""

from __future__ import annotations

from typing import Any

import altair as alt

from paribus.data import TOKEN_CLASSES
from paribus.report.figures.figure_rows import MOST_LINES, Curves
from paribus.report.figures.style import (
    HEIGHT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    hover,
    names,
    rounded,
)
from paribus.results import Results

CLASSES = ("all", *TOKEN_CLASSES)
STATISTICS = ("mean", "q05", "q25", "q75", "q95")


# Probe, statistic, title, unit of the axis.
PROBES = (
    (
        "residual_norm",
        "mean",
        "Residual norm across depth",
        "mean norm of the residual stream (L2)",
    ),
    (
        "position_similarity",
        "plain",
        "Similarity of positions across depth (oversmoothing)",
        "mean cosine similarity",
    ),
)


def columns(results: Results) -> list[str]:
    """All that `all_depths` reads."""
    parts = depths(results)
    by_depth = [f"{probe}/{part}/{s}" for probe, s, *_ in PROBES for part in parts]
    return [*(f"embedding_norm/{c}/{s}" for c in CLASSES for s in STATISTICS), *by_depth]


def all_depths(curves: Curves) -> list[Figure]:
    """Every figure of this kind that the records have."""
    drawn = [norm_by_class(curves), *(across_depth(curves, *one) for one in PROBES)]
    return [figure for figure in drawn if figure is not None]


def norm_by_class(curves: Curves) -> Figure | None:
    """Distribution of the norm at the first block's input at the end, by token class."""
    results = curves.results
    called = names(results.study)
    last = curves.last([f"embedding_norm/{c}/{s}" for c in CLASSES for s in STATISTICS])
    rows = []
    for arm, seed in results.trials:
        for part in CLASSES:
            keys = [(arm, seed, f"embedding_norm/{part}/{s}") for s in STATISTICS]
            if all(key in last for key in keys):
                values = {s: rounded(last[key]) for s, key in zip(STATISTICS, keys, strict=True)}
                rows.append({"arm": called[arm], "seed": seed, "class": part} | values)
    if not rows:
        return None
    name = "norm-by-class"
    classes = [part for part in CLASSES if any(row["class"] == part for row in rows)]
    y = {"title": "norm entering block 1 (L2)", "scale": alt.Scale(zero=False)}
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
    title = "Norm entering block 1 by token class"
    caption = (
        f"{title}, at the last step that met the class: dots are means, thick bars reach from the "
        "first to the third quartile of tokens, thin ones from the 5th to the 95th percentile, "
        "each averaged over seeds."
    )
    chart = alt.layer(thin, thick, dots).properties(width=WIDTH, height=HEIGHT)
    return Figure(name, "diagnostics", title, caption, chart, rows)


def across_depth(
    curves: Curves, probe: str, statistic: str, title: str, unit: str
) -> Figure | None:
    """A probe before every block and after the last, at the end of training."""
    results = curves.results
    called = names(results.study)
    parts = depths(results)
    last = curves.last([f"{probe}/{part}/{statistic}" for part in parts])
    short = {part: part.removeprefix("block ") for part in parts}
    rows: list[dict[str, Any]] = [
        {
            "arm": called[arm],
            "seed": seed,
            "depth": short[column.split("/")[1]],
            "order": parts.index(column.split("/")[1]),
            "value": rounded(value),
        }
        for (arm, seed, column), value in last.items()
    ]
    if not rows:
        return None
    name = f"{probe}-depth".replace("_", "-")
    y = {"title": unit, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X(
            "depth:O",
            title="before block",
            sort=alt.EncodingSortField("order", op="min"),
            axis=alt.Axis(labelAngle=0, labelOverlap="greedy"),
        ),
        color=arm_colour(results.study),
    )
    layers = []
    if len(results.trials) <= MOST_LINES:
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
    caption = (
        f"{title}, at the end of training: before every block, and after the last one (output). "
        "Thick lines are means over seeds, thin ones seeds."
    )
    chart = alt.layer(*layers, thick).properties(width=WIDTH, height=HEIGHT)
    return Figure(name, "diagnostics", title, caption, chart, rows)


def depths(results: Results) -> list[str]:
    """Where the residual stream is measured, in the deepest arm."""
    layers = max(results.study.setting(arm).model.n_layer for arm in results.study.arms)
    return [*(f"block {i + 1}" for i in range(layers)), "output"]
