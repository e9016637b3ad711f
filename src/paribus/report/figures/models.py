"""Trained models: inside, by depth and token class; on held-out text and tasks; and their speed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import altair as alt
import pyarrow.compute as pc

from paribus.drawing import PART, Drawing
from paribus.report.figures.rows import Row, few, finding, series_of
from paribus.report.figures.style import (
    HEIGHT,
    PANEL,
    SHARES,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    chart_of,
    dots,
    figure_name,
    is_share,
    lines,
    names_below,
    panels,
    rounded,
    value_axis,
)
from paribus.report.figures.training import BANDS
from paribus.results import Results

STATISTICS = ("mean", "q05", "q25", "q75", "q95")
FEWEST_IN_PART = 0.001  # of all tokens; fuller parts are drawn against another measure
MOST_PLACES = 64  # of a curve; more, such as positions of a window, are averaged
MOST_TICKS = 6  # of a logarithmic axis
MOST_PARTS = 24  # beside each other
KINDS = {"training": "training", "prefill": "reading (prefill)", "decoding": "writing (decoding)"}
SPANS = "Bars are means over seeds; lines reach from the lowest seed to the highest."


# Inside, at the end of training


def spread(results: Results, drawing: Drawing) -> Figure | None:
    """Return the distribution in each part at the last step that has it."""
    columns = {
        f"{column.rpartition('/')[0]}/{statistic}": (part, statistic)
        for column, part in drawing.columns.items()
        for statistic in STATISTICS
    }
    last: dict[tuple[str, int, str], Row] = {}
    for arm, seed, column, _, values in series_of(results, columns):
        part, statistic = columns[column]
        head = {"arm": results.study.called[arm], "seed": seed, "part": part}
        last.setdefault((arm, seed, part), head)[statistic] = rounded(float(values[-1]))
    rows = [row for row in last.values() if all(statistic in row for statistic in STATISTICS)]
    if not rows:
        return None
    rows = few(results, rows, *STATISTICS)
    name, axis = _before(drawing) + "-spread", drawing.axis
    base = _beside(results, rows, name)
    looks: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"strokeWidth": 1.2}, "q05", "q95"),
        ({"strokeWidth": 5, "opacity": 0.55}, "q25", "q75"),
    )
    thin, thick = (
        base.mark_rule(**look, tooltip=None).encode(
            y=value_axis(f"mean({low}):Q", axis), y2=alt.Y2(f"mean({high})")
        )
        for look, low, high in looks
    )
    tooltips = [alt.Tooltip(field) for field in ("arm:N", "part:N", "mean(mean):Q")]
    means = base.mark_circle(size=40, opacity=1).encode(
        y=value_axis("mean(mean):Q", axis), tooltip=tooltips
    )
    ends = [row | {"value": row["mean"]} for row in rows]
    title = finding(drawing.title, ends, share=is_share(axis))
    caption = (
        "Means, quartiles (thick) and 5th to 95th percentiles (thin), each averaged over seeds."
    )
    return _figure(drawing, name, title, caption, alt.layer(thin, thick, means), rows)


def profile(results: Results, drawing: Drawing) -> Figure | None:
    """Return all parts in their order, at the end of training."""
    before = "block " if "block" in drawing.across else ""  # the axis says it once
    order = {part: i for i, part in enumerate(drawing.parts)}
    rows: list[Row] = []
    for arm, seed, column, _, values in series_of(results, drawing.columns):
        part = drawing.columns[column]
        head = {"arm": results.study.called[arm], "seed": seed}
        place = {"x": part.removeprefix(before), "order": order[part]}
        rows.append(head | place | {"value": rounded(float(values[-1]))})
    if not rows:
        return None
    title = finding(drawing.title, rows, part="x", before=before, share=is_share(drawing.axis))
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy")
    sort = alt.EncodingSortField("order", op="min")
    x = alt.X("x:O", title=drawing.across or None, sort=sort, axis=axis)
    name = _before(drawing).replace("_", "-") + "-depth"
    return _lines(results, drawing, name, title, "At the end of training.", rows, x)


def _lines(
    results: Results,
    drawing: Drawing,
    name: str,
    title: str,
    caption: str,
    rows: list[Row],
    x: alt.X,
) -> Figure:
    rows = few(results, rows)
    across = drawing.across or "part"
    drawn = lines(results.study, rows, x, drawing.axis, across=across, name=name)
    caption = f"{caption} {BANDS if 'low' in rows[0] else ''}".strip()
    return _figure(drawing, name, title, caption, alt.layer(*drawn), rows)


def _before(drawing: Drawing) -> str:
    return figure_name(drawing.column.split(PART)[0].strip(" /"))


def _beside(results: Results, rows: list[Row], name: str) -> alt.Chart:
    """Return a chart of parts beside each other, arm by arm in each."""
    arms = list(results.study.called.values())
    return chart_of(name).encode(
        x=names_below(dict.fromkeys(row["part"] for row in rows), "part"),
        xOffset=alt.XOffset("arm:N", sort=arms),
        color=arm_colour(results.study, line=False),
    )


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


def against(results: Results, drawing: Drawing) -> Figure | None:
    """Return a measure against another one, part by part; on the diagonal both are equal."""
    values = _values(results, drawing)
    against = _values(results, replace(drawing, column=drawing.against))
    tokens: Counter[tuple[str, int]] = Counter()
    for (arm, seed, _), (_, count) in values.items():
        tokens[arm, seed] += count
    points = {part: i for i, part in enumerate(dict.fromkeys(part for *_, part in values))}
    rows = [
        {
            **{"arm": results.study.called[key[0]], "seed": key[1], "part": key[2]},
            **{"point": points[key[2]], "x": against[key][0], "value": value},
        }
        for key, (value, count) in values.items()
        if key in against and count >= FEWEST_IN_PART * tokens[key[:2]]
    ]
    if not rows:
        return None
    caption = f"{drawing.note} Parts of fewer than one token in a thousand are left out.".strip()
    title = drawing.title
    is_diagonal = all(0 <= row[key] <= 1 for row in rows for key in ("value", "x"))
    if is_diagonal:
        distances: dict[str, list[float]] = {}
        for row in rows:
            distances.setdefault(row["arm"], []).append(abs(row["value"] - row["x"]))
        means = [{"arm": arm, "value": sum(d) / len(d)} for arm, d in distances.items()]
        title = finding(f"{title}, mean distance from the diagonal", means, share=True)
    rows, name = few(results, rows, "value", "x"), _name(drawing)
    scale = alt.Scale(domain=[0, 1]) if is_diagonal else None
    x = value_axis("x:Q", drawing.across, scale=scale, channel=alt.X)
    look = {"across": drawing.across.removesuffix(SHARES), "name": name, "scale": scale}
    drawn = lines(results.study, rows, x, drawing.axis, **look)
    if is_diagonal:
        ends = alt.Chart(alt.InlineData(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
        line = ends.mark_line(color=TEXT, opacity=0.5, strokeDash=[4, 4], tooltip=None)
        drawn.insert(0, line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q")))
    return _figure(drawing, name, title, caption, alt.layer(*drawn), rows, height=HEIGHT + 60)


def curve(results: Results, drawing: Drawing) -> Figure | None:
    """Return a measure by the number that its parts are called after.

    Of many places neighbours are one point, the mean of them at the last.
    """
    values = {
        (arm, seed, place): value
        for (arm, seed, part), (value, _) in _values(results, drawing).items()
        if (place := _number(part)) is not None
    }
    if not values:
        return None
    places = sorted({place for *_, place in values})
    step = -(-len(places) // MOST_PLACES)
    ends = [*places[step - 1 :: step], places[-1]]
    last = {place: ends[i // step] for i, place in enumerate(places)}
    groups: dict[tuple[str, int, float], list[float]] = {}
    for (arm, seed, place), value in values.items():
        groups.setdefault((results.study.called[arm], seed, last[place]), []).append(value)
    rows = [
        {"arm": arm, "seed": seed, "x": place, "value": rounded(sum(group) / len(group))}
        for (arm, seed, place), group in groups.items()
    ]
    places = sorted({*last.values()})
    ticks = places[:: -(-len(places) // MOST_TICKS)]
    x = alt.X(
        "x:Q",
        title=drawing.across or None,
        scale=alt.Scale(type="log" if drawing.log else "linear", nice=False),
        axis=alt.Axis(values=ticks, format=".2~g") if drawing.log else alt.Undefined,
    )
    before, share = f"{drawing.across.partition(' (')[0]} ".lstrip(), is_share(drawing.axis)
    title = finding(drawing.title, rows, part="x", before=before, share=share)
    caption = drawing.note
    if step > 1:
        caption += f" Each point is the mean of {step} neighbours."
    return _lines(results, drawing, _name(drawing), title, caption.strip(), rows, x)


def parts(results: Results, drawing: Drawing) -> Figure | None:
    """Return the parts of a measure beside each other."""
    values, called = _values(results, drawing), results.study.called
    recorded = list(dict.fromkeys(part for *_, part in values))
    if drawing.parts:
        recorded = [part for part in drawing.parts if part in recorded]
    shown = recorded[:MOST_PARTS]
    rows = [
        {"arm": called[arm], "seed": seed, "part": part, "value": value}
        for part_shown in shown
        for (arm, seed, part), (value, _) in values.items()
        if part == part_shown
    ]
    if not rows:
        return None
    title = finding(drawing.title, rows, share=is_share(drawing.axis))
    rows, name = few(results, rows), _name(drawing)
    drawn = dots(_beside(results, rows, name), rows, drawing.axis, width=14)
    caption = f"{drawing.note} {SPANS if 'low' in rows[0] else ''}".strip()
    if len(recorded) > MOST_PARTS:
        caption += f" The first {MOST_PARTS} of {len(recorded)} parts are drawn."
    return _figure(drawing, name, title, caption, alt.layer(*drawn), rows)


def _name(drawing: Drawing) -> str:
    """Return the name of the measure, and of its parts."""
    if drawing.column.endswith(f"/{PART}"):
        return figure_name(drawing.column.replace(PART, drawing.how))
    return figure_name(drawing.column.replace(PART, "").strip(" /="))


def _number(part: str) -> float | None:
    try:
        number = float(part)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _values(results: Results, drawing: Drawing) -> dict[tuple[str, int, str], tuple[float, int]]:
    """Return {(arm, seed, part): (value, count)} of a measure's finite values."""
    measure, table = drawing.column.partition("/")[0], results.evaluation
    if not {"value", "count"} <= set(table.column_names) or not len(table):
        return {}
    values = {}
    for row in table.filter(pc.field("measure") == measure).to_pylist():
        part = drawing.part_of(f"{measure}/{row['part']}")
        if part is not None and row["value"] is not None and math.isfinite(row["value"]):
            values[row["arm"], row["seed"], part] = rounded(row["value"]), row["count"] or 0
    return values


# On tasks, and in speed


def tasks(results: Results) -> Figure | None:
    """Return accuracy on every task; None where no trial answered any."""
    rows: list[Row] = [
        {
            "arm": results.study.called[row["arm"]],
            "seed": row["seed"],
            "part": f"{row['task']}, {row['shots']} shots",
            "value": rounded(row["accuracy"]),
            "chance": rounded(row["chance"]),
        }
        for row in results.tasks.to_pylist()
        if row["accuracy"] is not None
    ]
    if not rows:
        return None
    title, axis = finding("Accuracy by task", rows, share=True), f"accuracy{SHARES}"
    chance = chart_of(None).mark_tick(color=TEXT, opacity=0.6, width=PANEL, tooltip=None)
    chance = chance.encode(x=_arms(results), y=value_axis("mean(chance):Q", axis))
    explanation = "The long line across is what guessing gives."
    return _by_panel(results, "tasks", title, explanation, rows, axis, [chance])


def throughput(results: Results) -> Figure | None:
    """Return tokens per second: measured in turn if available, else timed during training."""
    called = results.study.called
    rows: list[Row] = [
        {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "part": KINDS.get(row["kind"], row["kind"]),
            "value": rounded(row["tokens"] / row["seconds"]),
        }
        for row in results.throughput.to_pylist()
        if row["seconds"]
    ]
    caption = "Arms took turns within seconds of each other."
    if not rows:
        caption = "As timed while training: other load on the machine is in it."
        for (arm, seed), timing in results.timing.items():
            tokens, seconds = results.trials[arm, seed].get("tokens"), timing["training_seconds"]
            if seconds and tokens is not None:
                head = {"arm": called[arm], "seed": seed, "part": KINDS["training"]}
                rows.append(head | {"value": rounded(tokens / seconds)})
    if not rows:
        return None
    title, look = finding("Tokens per second", rows), {"format": "~s", "form": ",.0f"}
    unit = "tokens per second"
    return _by_panel(results, "throughput", title, caption, rows, unit, [], **look)


def _arms(results: Results) -> alt.X:
    return alt.X("arm:N", title=None, sort=[*results.study.called.values()], axis=None)


def _by_panel(
    results: Results,
    name: str,
    title: str,
    caption: str,
    rows: list[Row],
    axis: str,
    below: list[alt.Chart],
    **look: Any,
) -> Figure:
    """Return dots for each arm, in a panel for each part."""
    rows = few(results, rows)
    base = chart_of(None).encode(x=_arms(results), color=arm_colour(results.study, line=False))
    drawn = alt.layer(*below, *dots(base, rows, axis, width=18, **look))
    labels = dict.fromkeys(row["part"] for row in rows)
    chart = panels(drawn, list(labels), name, own="y")
    caption = f"{SPANS if 'low' in rows[0] else ''} {caption}".strip()
    return Figure(name, "evaluation", title, caption, chart, rows, panel=PANEL, wide=True)
