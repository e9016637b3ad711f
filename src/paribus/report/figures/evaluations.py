"""What trained models do with held-out text: measures, drawn as they declare, and tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from paribus.drawing import HELD_OUT, PART, Drawing
from paribus.report.figures.figure_rows import is_large, over_seeds, seed_marks
from paribus.report.figures.style import (
    HEIGHT,
    PANEL,
    PANEL_HEIGHT,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    figure_name,
    hover,
    names,
    rounded,
)
from paribus.results import Results

FEWEST_IN_PART = 0.001  # of all tokens; fuller parts are drawn against another measure
MOST_PLACES = 64  # of a curve; more, such as positions of a window, are averaged
MOST_TICKS = 6  # of a logarithmic axis
MOST_PARTS = 24  # beside each other


def all_heldout(results: Results) -> list[Figure]:
    """Every figure that the measures of the records declare."""
    drawn = [
        DRAWN[drawing.how](results, drawing)
        for drawing in results.drawings
        if drawing.how in HELD_OUT
    ]
    return [figure for figure in drawn if figure is not None]


def _against(results: Results, drawing: Drawing) -> Figure | None:
    """A measure against another one, part by part; on the diagonal both are equal."""
    there = _values(results, drawing.column, drawing.part_of)
    beside = replace(drawing, column=drawing.against)
    other = _values(results, drawing.against, beside.part_of)
    tokens: Counter[tuple[str, int]] = Counter()
    for (arm, seed, _), row in there.items():
        tokens[arm, seed] += row["count"]
    rows = [
        {key: row[key] for key in ("arm", "seed", "value")}
        | {"part": key[2], "other": other[key]["value"]}
        for key, row in there.items()
        if key in other and row["count"] >= FEWEST_IN_PART * tokens[key[:2]]
    ]
    if not rows:
        return None
    if is_large(results):
        rows = over_seeds(rows, "value", "other")
    name = _name(drawing)
    order = {part: i for i, part in enumerate(dict.fromkeys(row["part"] for row in rows))}
    rows = [row | {"order": order[row["part"]]} for row in rows]
    shares = all(0 <= row[key] <= 1 for row in rows for key in ("value", "other"))
    scale = alt.Scale(domain=[0, 1]) if shares else alt.Scale(zero=False)
    y = {"title": drawing.axis, "scale": scale}
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X("other:Q", title=drawing.across, scale=scale), color=arm_colour(results.study)
    )
    thin = base.mark_line(strokeWidth=0.7, opacity=0.45).encode(
        y=alt.Y("value:Q", **y), detail=alt.Detail("seed:N"), order=alt.Order("order:Q")
    )
    thick = (
        alt.Chart(alt.NamedData(name))
        .transform_aggregate(
            other="mean(other)", value="mean(value)", groupby=["arm", "part", "order"]
        )
        .mark_line(strokeWidth=2.2, point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("other:Q", title=drawing.across, scale=scale),
            y=alt.Y("value:Q", **y),
            order=alt.Order("order:Q"),
            color=arm_colour(results.study),
            strokeDash=arm_dash(results.study),
            tooltip=hover("arm:N", "part:N", "other:Q", "value:Q"),
        )
    )
    layers = [_diagonal()] if shares else []
    if not is_large(results):
        layers.append(thin)
    chart = alt.layer(*layers, thick).properties(width=WIDTH, height=HEIGHT + 60)
    caption = (
        f"{_titled(drawing)} Thick lines are means over seeds. Parts of fewer than one token in a "
        "thousand are left out."
    )
    return _figure(drawing, caption, chart, rows)


def _diagonal() -> Any:
    """Where both measures are equal."""
    ends = alt.InlineData(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}])
    line = alt.Chart(ends).mark_line(color=TEXT, opacity=0.5, strokeDash=[4, 4], tooltip=None)
    return line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))


def _curve(results: Results, drawing: Drawing) -> Figure | None:
    """A measure by the number that its parts are called after."""
    rows, step = _by_place(results, drawing)
    if not rows:
        return None
    if is_large(results):
        rows = over_seeds(rows, "value")
    places = sorted({row["place"] for row in rows})
    scale = alt.Scale(type="log" if drawing.log else "linear", nice=False)
    ticks = places[:: -(-len(places) // MOST_TICKS)]
    across = alt.X(
        "place:Q",
        title=drawing.across or None,
        scale=scale,
        axis=alt.Axis(values=ticks, format=".2~g") if drawing.log else alt.Undefined,
    )
    y = {"title": drawing.axis, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.NamedData(_name(drawing))).encode(
        x=across, color=arm_colour(results.study)
    )
    thin = base.mark_line(strokeWidth=0.7, opacity=0.45).encode(
        y=alt.Y("value:Q", **y), detail=alt.Detail("seed:N")
    )
    thick = base.mark_line(strokeWidth=2.2, point=len(places) == 1).encode(
        y=alt.Y("mean(value):Q", **y),
        strokeDash=arm_dash(results.study),
        tooltip=hover("arm:N", "place:Q", alt.Tooltip("mean(value):Q", format=".4g")),
    )
    few, also = ([], "") if is_large(results) else ([thin], ", thin ones seeds")
    chart = alt.layer(*few, thick).properties(width=WIDTH, height=HEIGHT)
    caption = f"{_titled(drawing)} Thick lines are means over seeds{also}."
    if step > 1:
        caption += f" Each point is the mean of {step} neighbours."
    return _figure(drawing, caption, chart, rows)


def _by_place(results: Results, drawing: Drawing) -> tuple[list[dict[str, Any]], int]:
    """{arm, seed, place, value} of a curve, and of how many neighbours each is the mean.

    So many neighbours are one point, at the last of them.
    """
    found = {
        (arm, seed, place): row
        for (arm, seed, part), row in _values(results, drawing.column, drawing.part_of).items()
        if (place := _number(part)) is not None
    }
    places = sorted({place for *_, place in found})
    step = max(1, -(-len(places) // MOST_PLACES))
    last = {
        place: places[min(i - i % step + step, len(places)) - 1] for i, place in enumerate(places)
    }
    groups: dict[tuple[str, int, float], list[float]] = {}
    for (_, _, place), row in found.items():
        groups.setdefault((row["arm"], row["seed"], last[place]), []).append(row["value"])
    rows = [
        {"arm": arm, "seed": seed, "place": place, "value": rounded(sum(v) / len(v))}
        for (arm, seed, place), v in groups.items()
    ]
    return rows, step


def _parts(results: Results, drawing: Drawing) -> Figure | None:
    """The parts of a measure beside each other, a dot for each seed."""
    found = _values(results, drawing.column, drawing.part_of)
    there = list(dict.fromkeys(part for *_, part in found))
    if drawing.parts:
        there = [part for part in drawing.parts if part in there]
    shown = there[:MOST_PARTS]
    rows = [
        {key: row[key] for key in ("arm", "seed", "value")} | {"part": part}
        for (_, _, part), row in found.items()
        if part in shown
    ]
    if not rows:
        return None
    called = names(results.study)
    y = {"title": drawing.axis, "scale": alt.Scale(zero=False)}
    base = alt.Chart(alt.NamedData(_name(drawing))).encode(
        x=alt.X("part:N", title=None, sort=shown, axis=alt.Axis(labelAngle=0, labelLimit=90)),
        xOffset=alt.XOffset("arm:N", sort=[*called.values()]),
        color=arm_colour(results.study, line=False),
    )
    if is_large(results):
        rows = over_seeds(rows, "value")
    told = hover("arm:N", "seed:N", "part:N", "value:Q")
    seeds, said = seed_marks(results, base.encode(tooltip=told), y, size=26)
    means = base.mark_tick(width=14, thickness=2.5).encode(y=alt.Y("mean(value):Q", **y))
    chart = alt.layer(seeds, means).properties(width=WIDTH, height=HEIGHT)
    caption = f"{_titled(drawing)} {said}"
    if len(there) > MOST_PARTS:
        caption += f" The first {MOST_PARTS} of {len(there)} parts are drawn."
    return _figure(drawing, caption, chart, rows)


DRAWN = {"curve": _curve, "parts": _parts, "against": _against}


def _name(drawing: Drawing) -> str:
    """Of the figure: that of the measure, and what its parts are called."""
    if drawing.column.endswith(f"/{PART}"):
        return figure_name(drawing.column.replace(PART, drawing.how))
    return figure_name(drawing.column.replace(PART, "").strip(" /="))


def _titled(drawing: Drawing) -> str:
    return f"{drawing.title}. {drawing.note}".strip()


def _figure(drawing: Drawing, caption: str, chart: Any, rows: list[dict[str, Any]]) -> Figure:
    name, section = _name(drawing), drawing.section
    return Figure(name, section, drawing.title, caption, chart, rows, in_text=drawing.in_text)


def _number(part: str) -> float | None:
    try:
        number = float(part)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


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
    if is_large(results):
        rows = over_seeds(rows, "value")
    coloured = base.encode(
        color=arm_colour(results.study, line=False), tooltip=hover("arm:N", "seed:N")
    )
    seeds, said = seed_marks(results, coloured, y, size=26)
    means = base.mark_tick(width=18, thickness=2.5).encode(
        y=alt.Y("mean(value):Q", **y), color=arm_colour(results.study, line=False)
    )
    chart = (
        alt.layer(chance, seeds, means)
        .properties(width=PANEL, height=PANEL_HEIGHT)
        .facet(facet=alt.Facet("task:N", title=None), columns=3, data=alt.NamedData(name))
        .resolve_scale(y="independent")
    )
    caption = f"Accuracy on every task. {said} The long line across is what guessing gives."
    title = "Accuracy by task"
    return Figure(name, "evaluation", title, caption, chart, rows, panel=PANEL, wide=True)


def _values(
    results: Results, column: str, part_of: Callable[[str], str | None]
) -> dict[tuple[str, int, str], dict[str, Any]]:
    """{(arm, seed, part): {arm, seed, value, count}} of a measure's finite values."""
    called, measure = names(results.study), column.partition("/")[0]
    table = results.evaluation
    if not {"value", "count"} <= set(table.column_names) or not len(table):
        return {}
    table = table.filter(pc.field("measure") == measure)
    found = {}
    for row in table.select(["arm", "seed", "part", "value", "count"]).to_pylist():
        part = part_of(f"{measure}/{row['part']}")
        if row["value"] is None or not math.isfinite(row["value"]) or part is None:
            continue
        found[row["arm"], row["seed"], part] = {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "value": rounded(row["value"]),
            "count": row["count"] or 0,
        }
    return found
