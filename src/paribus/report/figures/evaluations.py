"""What trained models do with held-out text: calibration, temperature, context, tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from paribus.report.figures.figure_rows import MOST_LINES
from paribus.report.figures.style import (
    HEIGHT,
    PANEL,
    PANEL_HEIGHT,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    hover,
    names,
    rounded,
)
from paribus.results import Results

FEWEST_IN_BIN = 0.001  # of all tokens; fuller bins are drawn
WINDOW_PARTS = 64  # positions of a window are averaged into so many places at most


def all_heldout(results: Results) -> list[Figure]:
    """Every figure of this kind that the records have."""
    drawn = [
        reliability(results),
        temperature(results, "temperature_loss", "Loss by temperature", "loss (nats/token)"),
        temperature(
            results,
            "temperature_calibration_error",
            "Calibration error by temperature",
            "expected calibration error (share)",
        ),
        by_place(results, "validation_loss", "position", "Loss by position in the window"),
        by_place(results, "context_loss", "context", "Loss by length of context"),
    ]
    return [figure for figure in drawn if figure is not None]


def reliability(results: Results) -> Figure | None:
    """Accuracy against confidence by bin; on the diagonal, confidence is what it says."""
    confidence = _values(results, "reliability_confidence")
    accuracy = _values(results, "reliability_accuracy")
    tokens: Counter[tuple[str, int]] = Counter()
    for (arm, seed, _), row in accuracy.items():
        tokens[arm, seed] += row["count"]
    rows = [
        {
            "arm": row["arm"],
            "seed": row["seed"],
            "bin": int(key[2].removeprefix("bin ")),
            "confidence": row["value"],
            "accuracy": accuracy[key]["value"],
        }
        for key, row in confidence.items()
        if key in accuracy and accuracy[key]["count"] >= FEWEST_IN_BIN * tokens[key[:2]]
    ]
    if not rows:
        return None
    name = "reliability"
    scale = alt.Scale(domain=[0, 1])
    diagonal = (
        alt.Chart(alt.InlineData(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
        .mark_line(color=TEXT, opacity=0.5, strokeDash=[4, 4], tooltip=None)
        .encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    )
    x = alt.X("confidence:Q", title="confidence (share)", scale=scale)
    y = {"title": "accuracy (share)", "scale": scale}
    base = alt.Chart(alt.NamedData(name)).encode(color=arm_colour(results.study))
    thin = base.mark_line(strokeWidth=0.7, opacity=0.45).encode(
        x=x, y=alt.Y("accuracy:Q", **y), detail=alt.Detail("seed:N")
    )
    thick = (
        alt.Chart(alt.NamedData(name))
        .transform_aggregate(
            confidence="mean(confidence)", accuracy="mean(accuracy)", groupby=["arm", "bin"]
        )
        .mark_line(strokeWidth=2.2, point=alt.OverlayMarkDef(size=30))
        .encode(
            x=x,
            y=alt.Y("accuracy:Q", **y),
            order=alt.Order("bin:Q"),
            color=arm_colour(results.study),
            strokeDash=arm_dash(results.study),
            tooltip=hover("arm:N", "confidence:Q", "accuracy:Q"),
        )
    )
    few = [thin] if len(results.trials) <= MOST_LINES else []
    chart = alt.layer(diagonal, *few, thick).properties(width=WIDTH, height=HEIGHT + 60)
    caption = (
        "Reliability: accuracy of the most probable token against its probability, by bins of "
        "equal width. On the dashed diagonal a model is right as often as it says; below it is too "
        "sure of itself. Thick lines are means over seeds. Bins of fewer than one token in a "
        "thousand are left out."
    )
    return Figure(name, "evaluation", "Reliability", caption, chart, rows)


def temperature(results: Results, measure: str, title: str, unit: str) -> Figure | None:
    """A measure with logits divided by a temperature."""
    rows = [
        {key: row[key] for key in ("arm", "seed", "value")} | {"temperature": place}
        for (_, _, part), row in _values(results, measure).items()
        for place in [float(part.removeprefix("T="))]
    ]
    if not rows:
        return None
    name = measure.replace("_", "-")
    x = alt.X(
        "temperature:Q",
        title="softmax temperature",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=[0.5, 0.7, 1, 1.4, 2], format="~g"),
    )
    caption = (
        f"{title} of the softmax. A model that is too sure of itself is best above 1. "
        "Thick lines are means over seeds, thin ones seeds."
    )
    return _curve(results, name, rows, x, title, unit, caption)


def by_place(results: Results, measure: str, kind: str, title: str) -> Figure | None:
    """A measure by place in the window, or by length of context."""
    prefix = f"{kind} "
    found = _values(results, measure, prefix)
    if not found:
        return None
    last = max(int(part.removeprefix(prefix)) for _, _, part in found)
    step = -(-last // WINDOW_PARTS) if kind == "position" else 1
    groups: dict[tuple[str, int, int], list[float]] = {}
    for (_, _, part), row in found.items():
        place = int(part.removeprefix(prefix))
        end = min(-(-place // step) * step, last)
        groups.setdefault((row["arm"], row["seed"], end), []).append(row["value"])
    rows = [
        {"arm": arm, "seed": seed, "place": place, "value": rounded(sum(v) / len(v))}
        for (arm, seed, place), v in groups.items()
    ]
    label = "position in the window (tokens)" if kind == "position" else "context (tokens)"
    x = alt.X("place:Q", title=label, scale=alt.Scale(nice=False))
    caption = f"{title}. Thick lines are means over seeds, thin ones seeds."
    if step > 1:
        caption += f" Each point is the mean of {step} positions."
    return _curve(results, f"loss-by-{kind}", rows, x, title, "loss (nats/token)", caption)


def tasks(results: Results, table: pa.Table | None) -> Figure | None:
    """Accuracy on every task, from a table of arm, seed, task, shots, accuracy and chance."""
    if table is None or not len(table):
        return None
    called = names(results.study)
    rows = [
        {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "task": f"{row['task']}, {row['shots']} shots",
            "value": rounded(row["accuracy"]),
            "chance": rounded(row["chance"]),
        }
        for row in table.to_pylist()
        if row["accuracy"] is not None
    ]
    name = "tasks"
    y = {"title": "accuracy (share)", "scale": alt.Scale(zero=False)}
    base = alt.Chart().encode(  # the facet has the data
        x=alt.X("arm:N", title=None, sort=[*called.values()], axis=None)
    )
    chance = base.mark_tick(color=TEXT, opacity=0.6, width=PANEL, tooltip=None).encode(
        y=alt.Y("mean(chance):Q", **y)
    )
    seeds = base.mark_circle(size=26, opacity=0.6).encode(
        y=alt.Y("value:Q", **y),
        color=arm_colour(results.study, line=False),
        tooltip=hover("arm:N", "seed:N"),
    )
    means = base.mark_tick(width=18, thickness=2.5).encode(
        y=alt.Y("mean(value):Q", **y), color=arm_colour(results.study, line=False)
    )
    chart = (
        alt.layer(chance, seeds, means)
        .properties(width=PANEL, height=PANEL_HEIGHT)
        .facet(facet=alt.Facet("task:N", title=None), columns=3, data=alt.NamedData(name))
        .resolve_scale(y="independent")
    )
    caption = (
        "Accuracy on every task, a dot for each seed and a bar for their mean; the long line is "
        "what guessing gives."
    )
    title = "Accuracy by task"
    return Figure(name, "evaluation", title, caption, chart, rows, panel=PANEL, wide=True)


def _curve(
    results: Results,
    name: str,
    rows: list[dict[str, Any]],
    x: alt.X,
    title: str,
    unit: str,
    caption: str,
) -> Figure:
    y = {"title": unit, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.NamedData(name)).encode(x=x, color=arm_colour(results.study))
    place = str(x.shorthand)
    thin = base.mark_line(strokeWidth=0.7, opacity=0.45).encode(
        y=alt.Y("value:Q", **y), detail=alt.Detail("seed:N")
    )
    thick = base.mark_line(strokeWidth=2.2).encode(
        y=alt.Y("mean(value):Q", **y),
        strokeDash=arm_dash(results.study),
        tooltip=hover("arm:N", place, alt.Tooltip("mean(value):Q", format=".4f")),
    )
    few = [thin] if len(results.trials) <= MOST_LINES else []
    chart = alt.layer(*few, thick).properties(width=WIDTH, height=HEIGHT)
    return Figure(name, "evaluation", title, caption, chart, rows)


def _values(
    results: Results, measure: str, prefix: str = ""
) -> dict[tuple[str, int, str], dict[str, Any]]:
    """{(arm, seed, part): {arm, seed, value, count}} of a measure's finite values."""
    called = names(results.study)
    table = results.evaluation
    if not {"value", "count"} <= set(table.column_names) or not len(table):
        return {}
    table = table.filter(pc.field("measure") == measure)
    found = {}
    for row in table.select(["arm", "seed", "part", "value", "count"]).to_pylist():
        if row["value"] is None or not row["part"].startswith(prefix):
            continue
        found[row["arm"], row["seed"], row["part"]] = {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "value": rounded(row["value"]),
            "count": row["count"] or 0,
        }
    return found
