"""What happens while training: losses, norms, moments and logits, step by step."""

from __future__ import annotations

from typing import Any

import altair as alt

from paribus.report.figures.figure_rows import Curves, over_steps
from paribus.report.figures.style import (
    HEIGHT,
    PANEL,
    PANEL_HEIGHT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    hover,
)
from paribus.results import Results
from paribus.study import Study

MOST_PANEL_ROWS = 3_000
LOG_FROM = 5  # a wider span of values starts on a logarithmic axis
SMALL = 1e-3  # from here on, powers of ten are easier to read
GROUPS = ("embedding", "positions", "embedding norm", "attention", "mlp", "norms", "other")
LINES = "Thin lines are seeds, thick ones their mean, and the band reaches from the lowest seed to "
LINES += "the highest."

# Column, section, title, unit of the axis.
SINGLE = (
    ("train_loss", "stability", "Training loss", "training loss (nats/token)"),
    ("train_objective", "stability", "What is learned from", "objective (nats/token)"),
    ("grad_norm", "stability", "Gradient norm before clipping", "total gradient norm (L2)"),
    ("embedding_norm/all/mean", "diagnostics", "Norm entering block 1", "mean norm (L2)"),
    ("logits/all/mean magnitude", "diagnostics", "Logit magnitude", "mean |logit| (nats)"),
    ("logits/all/max magnitude", "diagnostics", "Largest logit", "max |logit| (nats)"),
    (
        "position_similarity/block 1/plain",
        "diagnostics",
        "Similarity of positions at block 1 (oversmoothing)",
        "mean cosine similarity",
    ),
    (
        "embedding_similarity/tokens/plain",
        "diagnostics",
        "Similarity of token embeddings",
        "mean cosine similarity",
    ),
)
# Column of each group, section, title, unit of the axis.
GROUPED = (
    ("gradient_norm/{}/value", "stability", "Gradient norm by parameter group", "L2"),
    (
        "optimizer_slots/exp_avg_sq {}/mean",
        "diagnostics",
        "AdamW's second moment",
        "mean v (gradient²)",
    ),
    (
        "optimizer_slots/momentum_buffer {}/mean",
        "diagnostics",
        "Momentum of the optimizer",
        "mean |b| (gradient)",
    ),
    (
        "update_ratio/{}/value",
        "diagnostics",
        "Size of a step relative to the weights",
        "|Δw| / |w|",
    ),
)


def columns() -> list[str]:
    """All that `all_trends` reads."""
    grouped = [c for column, *_ in GROUPED for c in _group_columns(column)]
    return [column for column, *_ in SINGLE] + grouped


def all_trends(curves: Curves) -> list[Figure]:
    """Every trend that the records have."""
    drawn = [_trend(curves, *one) for one in SINGLE]
    drawn += [by_group(curves, *one) for one in GROUPED]
    return [figure for figure in drawn if figure is not None]


def trend(results: Results, column: str) -> Figure | None:
    """One of the trends in SINGLE; None where no trial has it."""
    about = next(one for one in SINGLE if one[0] == column)
    return _trend(Curves(results, [column]), *about)


def _trend(curves: Curves, column: str, section: str, title: str, unit: str) -> Figure | None:
    rows = over_steps(curves, {column: title})
    if not rows:
        return None
    name = column.replace("/", "-").replace(" ", "-")
    chart = _lines(curves.results.study, name, rows, unit).properties(width=WIDTH, height=HEIGHT)
    caption = f"{title} over training. {_about(rows)}"
    return Figure(name, section, title, caption, chart, rows, log=_positive(rows))


def by_group(curves: Curves, column: str, section: str, title: str, unit: str) -> Figure | None:
    """A probe of parameter groups over training, one panel a group."""
    rows = over_steps(curves, _group_columns(column), most_rows=MOST_PANEL_ROWS)
    there = [group for group in GROUPS if any(row.get("part") == group for row in rows)]
    if not rows:
        return None
    name = column.split("{}")[0].strip(" /").replace("/", "-").replace("_", "-") + "-groups"
    # The facet has the data; a layer with data of its own would draw all of it in every panel.
    chart = _lines(curves.results.study, None, rows, unit).properties(
        width=PANEL, height=PANEL_HEIGHT
    )
    facet = (
        chart.facet(
            facet=alt.Facet("part:N", title=None, sort=there), columns=3, data=alt.NamedData(name)
        )
        .resolve_scale(y="independent")
        .resolve_axis(x="independent")
    )
    caption = f"{title} over training, one panel for each group of parameters. {_about(rows)}"
    log = _positive(rows)
    return Figure(name, section, title, caption, facet, rows, log=log, panel=PANEL, wide=True)


def _group_columns(column: str) -> dict[str, str]:
    return {column.format(group): group for group in GROUPS}


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
