"""Trained models: inside, by depth and token class; on held-out text and tasks; and their speed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import altair as alt
import pyarrow.compute as pc

from paribus.drawing import HELD_OUT, PART, Drawing
from paribus.report.figures.figure_rows import Curves, finding, last_means, over_seeds
from paribus.report.figures.style import (
    HEIGHT,
    PANEL,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    figure_name,
    hover,
    in_lines,
    is_share,
    mean_line,
    over,
    panels,
    rounded,
    seed_lines,
    share_axis,
)
from paribus.report.tables import is_large
from paribus.results import Results

STATISTICS = ("mean", "q05", "q25", "q75", "q95")
FEWEST_IN_PART = 0.001  # of all tokens; fuller parts are drawn against another measure
MOST_PLACES = 64  # of a curve; more, such as positions of a window, are averaged
MOST_TICKS = 6  # of a logarithmic axis
BELOW_CHARACTERS = 12  # of a line of a name below a figure
MOST_PARTS = 24  # beside each other
KINDS = {"training": "training", "prefill": "reading (prefill)", "decoding": "writing (decoding)"}
SUMMED_UP = "Bars are means over seeds, and lines reach from their 5th to their 95th percentile."
Row = dict[str, Any]


# Inside, at the end of training


def all_depths(curves: Curves) -> list[Figure]:
    """Return distributions and profiles by depth, as far as the records have them."""
    drawings = curves.results.drawings
    drawn = [_spread(curves, drawing) for drawing in drawings if drawing.how == "spread"]
    drawn += [_profile(curves, drawing) for drawing in drawings if drawing.how == "profile"]
    return [figure for figure in drawn if figure is not None]


def quantile_columns(drawing: Drawing) -> dict[str, dict[str, str]]:
    """Return the columns of each part of a spread, by statistic."""
    return {
        part: {s: f"{column.rpartition('/')[0]}/{s}" for s in STATISTICS}
        for column, part in drawing.columns.items()
    }


def _spread(curves: Curves, drawing: Drawing) -> Figure | None:
    """Return the distribution in each part."""
    study, called = curves.results.study, curves.results.study.called
    wanted = quantile_columns(drawing)
    last = curves.last([column for columns in wanted.values() for column in columns.values()])
    rows = []
    for arm, seed in curves.results.trials:
        for part, columns in wanted.items():
            keys = [(arm, seed, column) for column in columns.values()]
            if all(key in last for key in keys):
                values = {s: rounded(last[key]) for s, key in zip(STATISTICS, keys, strict=True)}
                rows.append({"arm": called[arm], "seed": seed, "class": part} | values)
    if not rows:
        return None
    rows = _few(curves.results, rows, *STATISTICS)
    name = _before(drawing) + "-spread"
    classes = [part for part in wanted if any(row["class"] == part for row in rows)]
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X("class:N", title=None, sort=classes, axis=_below(classes)),
        xOffset=alt.XOffset("arm:N", sort=[called[arm] for arm in study.arms]),
        color=arm_colour(study, line=False),
    )
    thin = base.mark_rule(strokeWidth=1.2, tooltip=None).encode(
        y=over("mean(q05):Q", drawing.axis), y2=alt.Y2("mean(q95)")
    )
    thick = base.mark_rule(strokeWidth=5, opacity=0.55, tooltip=None).encode(
        y=over("mean(q25):Q", drawing.axis), y2=alt.Y2("mean(q75)")
    )
    dots = base.mark_circle(size=40, opacity=1).encode(
        y=over("mean(mean):Q", drawing.axis), tooltip=hover("arm:N", "class:N", "mean(mean):Q")
    )
    share = is_share(drawing.axis)
    title, ends = finding(drawing.title, last_means(rows, "mean", "class"), share=share)
    caption = (
        f"{drawing.title}, at the last step that has it: dots are means, thick bars reach from the "
        "first to the third quartile, thin ones from the 5th to the 95th percentile, "
        f"each averaged over seeds. Means: {ends}"
    )
    return _figure(drawing, name, title, caption, alt.layer(thin, thick, dots), rows)


def _profile(curves: Curves, drawing: Drawing) -> Figure | None:
    """Return all parts, in their order."""
    results, called = curves.results, curves.results.study.called
    parts, wanted = drawing.parts, drawing.columns
    # The axis says "block" once.
    short = {p: p.removeprefix("block ") if "block" in drawing.across else p for p in parts}
    rows: list[Row] = [
        {
            "arm": called[arm],
            "seed": seed,
            "depth": short[wanted[column]],
            "order": parts.index(wanted[column]),
            "value": rounded(value),
        }
        for (arm, seed, column), value in curves.last(wanted).items()
    ]
    if not rows:
        return None
    rows = _few(results, rows, "value")
    name = _before(drawing).replace("_", "-") + "-depth"
    base = alt.Chart(alt.NamedData(name)).encode(
        x=alt.X(
            "depth:O",
            title=drawing.across or None,
            sort=alt.EncodingSortField("order", op="min"),
            axis=alt.Axis(labelAngle=0, labelOverlap="greedy"),
        ),
        color=arm_colour(results.study),
    )
    tooltip = hover("arm:N", "depth:O", alt.Tooltip("mean(value):Q", format=".4g"))
    chart, text = _lines(results, base, drawing.axis, tooltip, point=alt.OverlayMarkDef(size=30))
    means, at = last_means(rows, part="depth"), "block " if "block" in drawing.across else ""
    share = is_share(drawing.axis)
    title, ends = finding(drawing.title, means, at, share=share)
    caption = f"{drawing.title}, at the end of training. {text} {ends}"
    return _figure(drawing, name, title, caption, chart, rows)


def _below(labels: list[str]) -> alt.Axis:
    """Return an axis of names, long ones broken."""
    return alt.Axis(labelAngle=0, labelLimit=90, labelExpr=in_lines(labels, BELOW_CHARACTERS, 3))


def _before(drawing: Drawing) -> str:
    return figure_name(drawing.column.split(PART)[0].strip(" /"))


def _few(results: Results, rows: list[Row], *values: str) -> list[Row]:
    """Return the rows, of a large study those of all seeds together."""
    return over_seeds(rows, *values) if is_large(results) else rows


def _lines(
    results: Results, base: alt.Chart, title: str, tooltip: list[alt.Tooltip], **more: Any
) -> tuple[Any, str]:
    """Return a line of each seed, unless they are many, and of their mean; and that in words."""
    thick = mean_line(base, over("mean(value):Q", title), results.study, tooltip, **more)
    if is_large(results):
        return alt.layer(thick), "Thick lines are means over seeds."
    thin = seed_lines(base, over("value:Q", title))
    return alt.layer(thin, thick), "Thick lines are means over seeds, thin ones seeds."


def _figure(
    drawing: Drawing,
    name: str,
    title: str,
    caption: str,
    chart: Any,
    rows: list[Row],
    *,
    height: int = HEIGHT,
) -> Figure:
    drawn = chart.properties(width=WIDTH, height=height)
    section, in_text = drawing.section, drawing.in_text
    return Figure(name, section, title, caption, drawn, rows, in_text=in_text)


# On held-out text


def all_heldout(results: Results) -> list[Figure]:
    """Return every figure that the measures of the records declare."""
    drawn = [
        DRAWN[drawing.how](results, drawing)
        for drawing in results.drawings
        if drawing.how in HELD_OUT
    ]
    return [figure for figure in drawn if figure is not None]


def _against(results: Results, drawing: Drawing) -> Figure | None:
    """Return a measure against another one, part by part; on the diagonal both are equal."""
    values = _values(results, drawing.column, drawing.part_of)
    beside = replace(drawing, column=drawing.against)
    beside_values = _values(results, drawing.against, beside.part_of)
    tokens: Counter[tuple[str, int]] = Counter()
    for (arm, seed, _), row in values.items():
        tokens[arm, seed] += row["count"]
    rows = [
        {key: row[key] for key in ("arm", "seed", "value")}
        | {"part": key[2], "other": beside_values[key]["value"]}
        for key, row in values.items()
        if key in beside_values and row["count"] >= FEWEST_IN_PART * tokens[key[:2]]
    ]
    if not rows:
        return None
    rows = _few(results, rows, "value", "other")
    order = {part: i for i, part in enumerate(dict.fromkeys(row["part"] for row in rows))}
    rows = [row | {"order": order[row["part"]]} for row in rows]
    shares = all(0 <= row[key] <= 1 for row in rows for key in ("value", "other"))
    scale = alt.Scale(domain=[0, 1]) if shares else alt.Scale(zero=False)
    (across, of_x), (upwards, of_y) = share_axis(drawing.across), share_axis(drawing.axis)
    x = alt.X("other:Q", title=across, scale=scale, axis=alt.Axis(**of_x))
    y = alt.Y("value:Q", title=upwards, scale=scale, axis=alt.Axis(**of_y))
    data, colour = alt.NamedData(_name(drawing)), arm_colour(results.study)
    thin = seed_lines(alt.Chart(data).encode(x=x, color=colour), y).encode(
        order=alt.Order("order:Q")
    )
    means = alt.Chart(data).transform_aggregate(
        other="mean(other)", value="mean(value)", groupby=["arm", "part", "order"]
    )
    tooltip = hover("arm:N", "part:N", "other:Q", "value:Q")
    thick = mean_line(means, y, results.study, tooltip, point=alt.OverlayMarkDef(size=30))
    thick = thick.encode(x=x, order=alt.Order("order:Q"), color=colour)
    chart = alt.layer(
        *([_diagonal()] if shares else []), *([] if is_large(results) else [thin]), thick
    )
    by_arm: dict[str, list[float]] = {}
    for row in rows:
        by_arm.setdefault(str(row["arm"]), []).append(abs(row["value"] - row["other"]))
    means = {"": {arm: sum(distances) / len(distances) for arm, distances in by_arm.items()}}
    title, text = finding(f"{drawing.title}, mean distance from the diagonal", means, share=True)
    caption = (
        f"{_titled(drawing)} Thick lines are means over seeds. Parts of fewer than one token in a "
        "thousand are left out."
    )
    if shares:
        caption += f" Mean distance from the diagonal over parts: {text}"
    title = title if shares else drawing.title
    return _figure(drawing, _name(drawing), title, caption, chart, rows, height=HEIGHT + 60)


def _diagonal() -> Any:
    """Return the line where both measures are equal."""
    ends = alt.InlineData(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}])
    line = alt.Chart(ends).mark_line(color=TEXT, opacity=0.5, strokeDash=[4, 4], tooltip=None)
    return line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))


def _curve(results: Results, drawing: Drawing) -> Figure | None:
    """Return a measure by the number that its parts are called after."""
    rows, step = _by_place(results, drawing)
    if not rows:
        return None
    rows = _few(results, rows, "value")
    places = sorted({row["place"] for row in rows})
    ticks = places[:: -(-len(places) // MOST_TICKS)]
    across = alt.X(
        "place:Q",
        title=drawing.across or None,
        scale=alt.Scale(type="log" if drawing.log else "linear", nice=False),
        axis=alt.Axis(values=ticks, format=".2~g") if drawing.log else alt.Undefined,
    )
    base = alt.Chart(alt.NamedData(_name(drawing))).encode(
        x=across, color=arm_colour(results.study)
    )
    tooltip = hover("arm:N", "place:Q", alt.Tooltip("mean(value):Q", format=".4g"))
    chart, text = _lines(results, base, drawing.axis, tooltip, point=len(places) == 1)
    also = f" Each point is the mean of {step} neighbours." if step > 1 else ""
    share = is_share(drawing.axis)
    title, ends = finding(
        drawing.title, last_means(rows, part="place"), _place(drawing), share=share
    )
    caption = f"{_titled(drawing)} {text}{also} {ends}"
    return _figure(drawing, _name(drawing), title, caption, chart, rows)


def _place(drawing: Drawing) -> str:
    """Return what stands before a number of a curve: `position `."""
    return f"{drawing.across.partition(' (')[0]} ".lstrip()


def _by_place(results: Results, drawing: Drawing) -> tuple[list[Row], int]:
    """Return {arm, seed, place, value} of a curve, and of how many neighbours each is the mean.

    So many neighbours are one point, at the last of them.
    """
    values = {
        (arm, seed, place): row
        for (arm, seed, part), row in _values(results, drawing.column, drawing.part_of).items()
        if (place := _number(part)) is not None
    }
    places = sorted({place for *_, place in values})
    step = max(1, -(-len(places) // MOST_PLACES))
    last = {
        place: places[min(i - i % step + step, len(places)) - 1] for i, place in enumerate(places)
    }
    groups: dict[tuple[str, int, float], list[float]] = {}
    for (_, _, place), row in values.items():
        groups.setdefault((row["arm"], row["seed"], last[place]), []).append(row["value"])
    rows = [
        {"arm": arm, "seed": seed, "place": place, "value": rounded(sum(v) / len(v))}
        for (arm, seed, place), v in groups.items()
    ]
    return rows, step


def _parts(results: Results, drawing: Drawing) -> Figure | None:
    """Return the parts of a measure beside each other, a dot for each seed."""
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
    called, rows = results.study.called, _few(results, rows, "value")
    base = alt.Chart(alt.NamedData(_name(drawing))).encode(
        x=alt.X("part:N", title=None, sort=shown, axis=_below(shown)),
        xOffset=alt.XOffset("arm:N", sort=[*called.values()]),
        color=arm_colour(results.study, line=False),
    )
    tooltip = hover("arm:N", "seed:N", "part:N", "value:Q")
    axis, written = share_axis(drawing.axis)
    y = {"title": axis, "scale": alt.Scale(zero=False), "axis": alt.Axis(**written)}
    marks, text = _marks(results, base, y, tooltip, size=26, width=14)
    title, ends = finding(drawing.title, last_means(rows), share=is_share(drawing.axis))
    caption = f"{_titled(drawing)} {text}"
    if len(there) > MOST_PARTS:
        caption += f" The first {MOST_PARTS} of {len(there)} parts are drawn."
    caption += f" {ends}"
    return _figure(drawing, _name(drawing), title, caption, alt.layer(*marks), rows)


DRAWN = {"curve": _curve, "parts": _parts, "against": _against}


def _name(drawing: Drawing) -> str:
    """Return the name of the measure, and of its parts."""
    if drawing.column.endswith(f"/{PART}"):
        return figure_name(drawing.column.replace(PART, drawing.how))
    return figure_name(drawing.column.replace(PART, "").strip(" /="))


def _titled(drawing: Drawing) -> str:
    return f"{drawing.title}. {drawing.note}".strip()


def _number(part: str) -> float | None:
    try:
        number = float(part)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _values(
    results: Results, column: str, part_of: Callable[[str], str | None]
) -> dict[tuple[str, int, str], Row]:
    """Return {(arm, seed, part): {arm, seed, value, count}} of a measure's finite values."""
    called, measure = results.study.called, column.partition("/")[0]
    table = results.evaluation
    if not {"value", "count"} <= set(table.column_names) or not len(table):
        return {}
    table = table.filter(pc.field("measure") == measure)
    values = {}
    for row in table.select(["arm", "seed", "part", "value", "count"]).to_pylist():
        part = part_of(f"{measure}/{row['part']}")
        if row["value"] is None or not math.isfinite(row["value"]) or part is None:
            continue
        values[row["arm"], row["seed"], part] = {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "value": rounded(row["value"]),
            "count": row["count"] or 0,
        }
    return values


# On tasks, and in speed


def tasks(results: Results) -> Figure | None:
    """Return accuracy on every task; None where no trial answered any."""
    if not len(results.tasks):
        return None
    called = results.study.called
    rows = [
        {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "task": f"{row['task']}, {row['shots']} shots",
            "value": rounded(row["accuracy"]),
            "chance": rounded(row["chance"]),
        }
        for row in results.tasks.to_pylist()
        if row["accuracy"] is not None
    ]
    rows = _few(results, rows, "value")
    axis, written = share_axis("accuracy (share)")
    y = {"title": axis, "scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=5, **written)}
    base = alt.Chart().encode(x=alt.X("arm:N", title=None, sort=[*called.values()], axis=None))
    chance = base.mark_tick(color=TEXT, opacity=0.6, width=PANEL, tooltip=None).encode(
        y=alt.Y("mean(chance):Q", **y)
    )
    coloured = base.encode(color=arm_colour(results.study, line=False))
    marks, text = _marks(results, coloured, y, hover("arm:N", "seed:N"), size=26, width=18)
    asked = {row["task"] for row in rows}
    facet = alt.Facet("task:N", title=None)
    chart = panels(alt.layer(chance, *marks), facet, "tasks", own="y", labels=asked)
    title, ends = finding("Accuracy by task", last_means(rows, part="task"), share=True)
    caption = f"Accuracy on every task. {text} The long line across is what guessing gives. {ends}"
    shown = {"panel": PANEL, "wide": True}
    return Figure("tasks", "evaluation", title, caption, chart, rows, **shown)


def throughput(results: Results) -> Figure | None:
    """Return tokens per second, measured in turn; as timed while training where that is not had."""
    called = results.study.called
    rows = [
        {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "kind": KINDS.get(row["kind"], row["kind"]),
            "value": rounded(row["tokens"] / row["seconds"]),
        }
        for row in results.throughput.to_pylist()
        if row["seconds"]
    ]
    how = "Arms took turns within seconds of each other."
    if not rows:
        how = "As timed while training: other load on the machine is in it."
        rows = [
            {
                "arm": called[arm],
                "seed": seed,
                "kind": "training",
                "value": rounded(results.trials[arm, seed]["tokens"] / timing["training_seconds"]),
            }
            for (arm, seed), timing in results.timing.items()
            if timing["training_seconds"] and "tokens" in results.trials[arm, seed]
        ]
    if not rows:
        return None
    rows = _few(results, rows, "value")
    axis = alt.Axis(format="~s", tickCount=5)
    y = {"title": "tokens per second", "scale": alt.Scale(zero=False), "axis": axis}
    base = alt.Chart().encode(
        x=alt.X("arm:N", title=None, sort=[*called.values()], axis=None),
        color=arm_colour(results.study, line=False),
    )
    tooltip = hover("arm:N", "seed:N", alt.Tooltip("value:Q", format=",.0f"))
    marks, text = _marks(results, base, y, tooltip, size=34, width=20)
    facet = alt.Facet("kind:N", title=None, sort=[*KINDS.values()])
    chart = panels(alt.layer(*marks), facet, "throughput", own="y")
    means = last_means(rows, part="kind")
    title, ends = finding("Tokens per second", means)
    caption, shown = f"Tokens per second. {text} {how} {ends}", {"panel": PANEL, "wide": True}
    return Figure("throughput", "evaluation", title, caption, chart, rows, **shown)


def _marks(
    results: Results,
    base: alt.Chart,
    y: dict[str, Any],
    told: list[alt.Tooltip],
    *,
    size: int,
    width: int,
) -> tuple[tuple[alt.Chart, alt.Chart], str]:
    """Return a dot for each seed, or the span of `over_seeds`, with a bar for the mean; in words
    too. `base` has all but the vertical axis `y`."""
    means = base.mark_tick(width=width, thickness=2.5).encode(y=alt.Y("mean(value):Q", **y))
    each = base.encode(tooltip=told)
    if is_large(results):
        span = each.mark_rule(strokeWidth=1.2)
        return (span.encode(y=alt.Y("low:Q", **y), y2=alt.Y2("high:Q")), means), SUMMED_UP
    dots = each.mark_circle(size=size, opacity=0.55).encode(y=alt.Y("value:Q", **y))
    return (dots, means), "A dot for each seed, and a bar for their mean."
