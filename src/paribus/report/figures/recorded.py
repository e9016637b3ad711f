"""Plots of recorded values: training curves, held-out loss, probes and measures.

Probes and measures specify the figures of their columns with `Drawing`. The other figures are part
of every report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pyarrow.compute as pc

from paribus import numbers
from paribus.analysis import Analysis
from paribus.drawing import PART, Drawing
from paribus.metric import readable
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    TEXT,
    WIDTH,
    Figure,
    Row,
    arm_colour,
    chart_of,
    figure_name,
    lines,
    names_below,
    panels,
    rounded,
    value_axis,
    zero_line,
)
from paribus.results import Results
from paribus.results.curves import AXES, Axis
from paribus.study.trainer import STACKED

Series = tuple[str, int, str, np.ndarray, np.ndarray]  # arm, seed, column, steps [n], values [n]

MOST_STEPS = 200  # points of one line
MOST_ROWS = 12_000  # of one figure
FEWEST_STEPS = 12
STATISTICS = ("mean", "q05", "q25", "q75", "q95")
FEWEST_IN_PART = 10  # tokens; fuller parts are drawn against another measure
MOST_PANELS = 12  # of one figure
MOST_PLACES = 64  # of a curve; of more, such as positions of a window, some are drawn
TRAIN_LOSS, STEP = "train_loss", "training step"
LOSS = "held-out loss (nats/token)"
BUDGETS: dict[Axis, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}


# Rows, read from the records: thinned, never averaged over steps


def series_of(results: Results, columns: Collection[str]) -> Iterator[Series]:
    """Yield one series per trial and column, skipping trials without the column."""
    probes = results.read_each("probes.parquet")
    for (arm, seed), table in results.trial_steps.items():
        sources = (table, probes[arm, seed])
        for column in columns:
            for source in [table for table in sources if column in table.column_names][:1]:
                line = finite_series(arm, seed, column, source["step"], source[column])
                if line is not None:
                    yield line


def finite_series(arm: str, seed: int, column: str, steps: Any, values: Any) -> Series | None:
    """Build a series from the points with finite step and value, or return None if all are NaN."""
    steps, values = (np.asarray(each, dtype=float) for each in (steps, values))
    kept = np.isfinite(steps) & np.isfinite(values)
    return (arm, seed, column, steps[kept], values[kept]) if kept.any() else None


def over_steps(
    results: Results, series: Sequence[Series], parts: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[Row]:
    """Convert series to rows with the keys arm, seed, part, x (step) and value.

    Args:
        parts: mapping from column to the label of its panel, or "" for no panels.
    """
    groups: dict[tuple[str, str], list[Series]] = {}
    for member in series:
        groups.setdefault((member[0], member[2]), []).append(member)
    rows = []
    for (arm, column), members in groups.items():
        steps, values = _on_shared_steps(members, most_rows // len(series))
        head: Row = {"arm": results.study.called[arm]}
        head |= {"part": parts[column]} if parts[column] else {}
        rows += [
            head | {"seed": seed, "x": step, "value": rounded(value)}
            for (_, seed, *_), line in zip(members, values, strict=True)
            for step, value in zip(steps.tolist(), line, strict=True)
            if np.isfinite(value)  # NaN before its first step and after its last
        ]
    return rows


def _on_shared_steps(members: list[Series], n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Resample series to shared steps; return the steps [n] and the values [series, n].

    Values between recorded steps are interpolated linearly; values outside a series' range of steps
    are NaN. The mean at a step thus covers all series whose range includes it.
    """
    own = []
    for *_, steps, values in members:  # of a step that was logged twice the last
        unique, at = np.unique(steps[::-1], return_index=True)
        own.append((unique, values[::-1][at]))
    every = np.unique(np.concatenate([steps for steps, _ in own]))
    n = min(len(every), max(FEWEST_STEPS, min(MOST_STEPS, n_points)))
    picked = np.linspace(0, len(every) - 1, n).round().astype(int)
    shared = np.union1d(every[picked], [steps[-1] for steps, _ in own]).astype(every.dtype)
    read = [np.interp(shared, *line, left=np.nan, right=np.nan) for line in own]
    return shared, np.array(read)


# Along training


def over_training(results: Results, drawing: Drawing) -> Figure | None:
    """Plot a recorded column over training, with one panel per part."""
    parts = dict(list(drawing.columns.items())[:MOST_PANELS])
    limit = MOST_ROWS if drawing.how == "trend" else MOST_ROWS // 4
    rows = over_steps(results, list(series_of(results, parts)), parts, most_rows=limit)
    if not rows:
        return None
    caption = ""
    if len(drawing.parts) > MOST_PANELS:
        caption = f"Only the first {MOST_PANELS} of {len(drawing.parts)} parts are shown."
    return _over_steps(results, (_name(drawing), drawing.title, caption), rows, drawing.axis)


def logged(results: Results) -> list[Figure]:
    """Plot the metrics logged by external programs, one figure per metric.

    The training loss of trainers other than the built-in one is included.
    """
    by_metric: dict[str, dict[tuple[str, int], Series]] = {}
    for trial, table in results.read_each("series.parquet").items():
        for name in table["metric"].unique().to_pylist():
            own = table.filter(pc.field("metric") == name)
            if line := finite_series(*trial, name, own["step"], own["value"]):
                by_metric.setdefault(name, {})[trial] = line
    if results.study.trainer != STACKED:
        for line in series_of(results, [TRAIN_LOSS]):
            by_metric.setdefault(TRAIN_LOSS, {}).setdefault(line[:2], line)
    figures = []
    for name, by_trial in by_metric.items():
        series = list(by_trial.values())
        metric = results.metrics.get(name)
        label, unit = (metric.label, metric.title) if metric else (readable(name),) * 2
        rows = over_steps(results, series, {name: ""})
        figures.append(_over_steps(results, (figure_name(name), label, "As logged."), rows, unit))
    return figures


def _over_steps(results: Results, head: tuple[str, str, str], rows: list[Row], axis: str) -> Figure:
    """Create a line plot over steps, with one panel per part.

    The value axis is logarithmic if positive values span a wide range.
    """
    labels = list(dict.fromkeys(row["part"] for row in rows if "part" in row))
    values = [row["value"] for row in rows]
    lowest, highest = min(values), max(values)
    is_log = lowest > 0 and highest > LOG_FROM * lowest
    scale = alt.Scale(type="log", nice=False) if is_log else None
    steps = alt.Axis(tickCount=3 if labels else 5, labelOverlap="greedy", labelFlush=True)
    x = alt.X("x:Q", title=STEP, scale=alt.Scale(nice=False), axis=steps)
    name = None if labels else head[0]
    chart: Any = alt.layer(*lines(results.study, rows, x, axis, name=name, scale=scale))
    if labels:
        chart = panels(chart, labels, head[0], own="y").resolve_axis(x="independent")
    else:
        chart = chart.properties(width=WIDTH, height=HEIGHT)
    return Figure(head[0], "along", *head[1:], chart, rows, log=lowest > 0)


def loss_curves(results: Results) -> Figure | None:
    """Plot held-out loss against tokens, FLOPs and seconds, or return None if not recorded."""
    curves, called = results.trial_curves, results.study.called
    limit = max(MOST_ROWS // max(len(AXES) * len(curves), 1), FEWEST_STEPS)
    rows: list[Row] = []
    for axis in AXES:
        for (arm, seed), curve in curves.items():
            spent, every = curve.along(axis), max(1, len(curve.loss) // limit)
            if spent is not None:
                head = {"arm": called[arm], "seed": seed, "part": BUDGETS[axis]}
                rows += [
                    head | {"point": i, "x": rounded(spent[i]), "value": rounded(curve.loss[i])}
                    for i in range(0, len(spent), every)
                    if np.isfinite(curve.loss[i])
                ]
    if not rows:
        return None
    read = next(iter(curves.values())).predicted
    caption = f"Loss on {read:,} held-out tokens. Seconds are based on speeds timed in alternation."
    drawn = lines(results.study, rows, _spent(), LOSS)
    return _by_budget("loss-curves", "Held-out loss", caption, rows, drawn)


def contrast_along(analysis: Analysis) -> Figure | None:
    """Plot each contrast against each budget with pointwise intervals, or return None if empty."""
    study = analysis.study
    every = 1 + sum(len(entry.spent) for entry in analysis.along) // MOST_ROWS
    rows = []
    for entry in analysis.along:
        head = {"arm": study.called[entry.arm], "part": BUDGETS[entry.axis]}
        each = (entry.spent, entry.mean, entry.low, entry.high)
        keys = ("x", "value", "low", "high")
        rows += [
            head | dict(zip(keys, map(rounded, point), strict=True))
            for point in list(zip(*each, strict=True))[::every]
        ]
    if not rows:
        return None
    caption = (
        "Arm minus reference at the same seed and budget. Bands are pointwise "
        f"{numbers.level(study.inference.alpha)} intervals of the paired t, not simultaneous "
        "bands for the whole curve."
    )
    title = "Change of held-out loss"
    drawn = lines(study, rows, _spent(), "change (nats/token)", scale=alt.Scale(zero=True))
    return _by_budget("contrast-along-training", title, caption, rows, [zero_line(), *drawn])


def _spent() -> alt.X:
    axis = alt.Axis(format="~s", tickCount=4, labelOverlap="greedy", labelFlush=True)
    return alt.X("x:Q", title=None, scale=alt.Scale(nice=False), axis=axis)


def _by_budget(name: str, title: str, caption: str, rows: list[Row], drawn: list[Any]) -> Figure:
    labels = list(dict.fromkeys(row["part"] for row in rows))
    chart = panels(alt.layer(*drawn), labels, name, own="x")
    return Figure(name, "along", title, caption, chart, rows, in_text=True)


# At the end of training, part by part


def spread(results: Results, drawing: Drawing) -> Figure | None:
    """Plot the distribution of each part (mean and quantiles) at its last recorded step."""
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
    base, axis = _beside(results, rows, drawing), drawing.axis

    def rule(low: str, high: str, **look: Any) -> alt.Chart:
        ends = {"y": value_axis(f"mean({low}):Q", axis), "y2": alt.Y2(f"mean({high})")}
        return base.mark_rule(**look).encode(**ends)

    means = base.mark_circle(size=40, opacity=1).encode(y=value_axis("mean(mean):Q", axis))
    quartiles = rule("q25", "q75", strokeWidth=5, opacity=0.55)
    drawn = [rule("q05", "q95", strokeWidth=1.2), quartiles, means]
    caption = "Means, quartiles (thick) and 5th to 95th percentiles (thin)."
    return _single(drawing, caption, rows, drawn)


def profile(results: Results, drawing: Drawing) -> Figure | None:
    """Plot values at the end of training against ordered parts, such as layers."""
    order = {part: i for i, part in enumerate(drawing.parts)}
    rows: list[Row] = []
    for arm, seed, column, _, values in series_of(results, drawing.columns):
        part = drawing.columns[column]
        head = {"arm": results.study.called[arm], "seed": seed}
        place = {"x": part, "order": order[part]}
        rows.append(head | place | {"value": rounded(float(values[-1]))})
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy")
    sort = alt.EncodingSortField("order", op="min")
    x = alt.X("x:O", title=drawing.across or None, sort=sort, axis=axis)
    return _lines(results, drawing, "At the end of training.", rows, x)


def curve(results: Results, drawing: Drawing) -> Figure | None:
    """Plot a measure against its numbered parts, such as token positions.

    Parts are thinned evenly if there are too many.
    """
    values = [
        (arm, seed, float(part), value)
        for (arm, seed, part), (value, _) in _values(results, drawing).items()
        if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", part)
    ]
    places = sorted({place for _, _, place, _ in values})
    drawn = places[:: 1 + len(places) // MOST_PLACES]
    rows = [
        {"arm": results.study.called[arm], "seed": seed, "x": place, "value": value}
        for arm, seed, place, value in values
        if place in drawn
    ]
    x = alt.X(
        "x:Q",
        title=drawing.across or None,
        scale=alt.Scale(type="log" if drawing.log else "linear", nice=False),
        axis=alt.Axis(tickCount=6, labelOverlap="greedy"),
    )
    return _lines(results, drawing, drawing.note, rows, x)


def against(results: Results, drawing: Drawing) -> Figure | None:
    """Plot one measure against another with one point per part, and a diagonal for shares."""
    values = _values(results, drawing)
    references = _values(results, replace(drawing, column=drawing.against))
    points = {part: i for i, part in enumerate(dict.fromkeys(part for *_, part in values))}
    rows = [
        {
            **{"arm": results.study.called[key[0]], "seed": key[1], "part": key[2]},
            **{"point": points[key[2]], "x": references[key][0], "value": value},
        }
        for key, (value, count) in values.items()
        if key in references and count >= FEWEST_IN_PART
    ]
    caption = f"{drawing.note} Parts with fewer than {FEWEST_IN_PART} tokens are excluded."
    scale, diagonal = None, []
    if all(0 <= row[key] <= 1 for row in rows for key in ("value", "x")):
        scale = alt.Scale(domain=[0, 1])
        ends = alt.Chart(alt.InlineData(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
        line = ends.mark_line(color=TEXT, opacity=0.5, strokeDash=[4, 4])
        diagonal = [line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))]
    x = value_axis("x:Q", drawing.across, scale=scale, channel=alt.X)
    return _lines(results, drawing, caption, rows, x, diagonal, scale=scale)


def parts(results: Results, drawing: Drawing) -> Figure | None:
    """Plot the parts of a measure side by side, with seeds as dots and means as ticks."""
    values, called = _values(results, drawing), results.study.called
    recorded = list(dict.fromkeys(part for *_, part in values))
    if drawing.parts:
        recorded = [part for part in drawing.parts if part in recorded]
    rows = [
        {"arm": called[arm], "seed": seed, "part": part, "value": value}
        for shown in recorded
        for (arm, seed, part), (value, _) in values.items()
        if part == shown
    ]
    if not rows:
        return None
    base = _beside(results, rows, drawing)
    seeds = base.mark_circle(size=28, opacity=0.55).encode(
        y=value_axis("value:Q", drawing.axis), detail=alt.Detail("seed:N")
    )
    means = base.mark_tick(width=14, thickness=2.5)
    means = means.encode(y=value_axis("mean(value):Q", drawing.axis))
    return _single(drawing, drawing.note, rows, [seeds, means])


def _lines(
    results: Results,
    drawing: Drawing,
    caption: str,
    rows: list[Row],
    x: alt.X,
    below: Sequence[Any] = (),
    **look: Any,
) -> Figure | None:
    """Create a figure with one line per arm, or return None if `rows` is empty."""
    if not rows:
        return None
    drawn = lines(results.study, rows, x, drawing.axis, name=_name(drawing), **look)
    return _single(drawing, caption, rows, [*below, *drawn])


def _single(drawing: Drawing, caption: str, rows: list[Row], drawn: Sequence[Any]) -> Figure:
    chart = alt.layer(*drawn).properties(width=WIDTH, height=HEIGHT)
    return Figure(_name(drawing), drawing.section, drawing.title, caption.strip(), chart, rows)


def _beside(results: Results, rows: list[Row], drawing: Drawing) -> alt.Chart:
    """Create a chart that groups the arms by part along the horizontal axis."""
    return chart_of(_name(drawing)).encode(
        x=names_below(dict.fromkeys(row["part"] for row in rows), "part"),
        xOffset=alt.XOffset("arm:N", sort=list(results.study.called.values())),
        color=arm_colour(results.study, line=False),
    )


def _name(drawing: Drawing) -> str:
    """Derive the figure's name from its column, with the plot kind in place of the part."""
    return figure_name(drawing.column.replace(PART, drawing.how))


def _values(results: Results, drawing: Drawing) -> dict[tuple[str, int, str], tuple[float, int]]:
    """Return {(arm, seed, part): (value, count)} for a measure's finite values."""
    measure, table = drawing.column.partition("/")[0], results.evaluation
    if not {"value", "count"} <= set(table.column_names) or not len(table):
        return {}
    values = {}
    for row in table.filter(pc.field("measure") == measure).to_pylist():
        part = drawing.part_of(f"{measure}/{row['part']}")
        if part is not None and row["value"] is not None and math.isfinite(row["value"]):
            values[row["arm"], row["seed"], part] = rounded(row["value"]), row["count"] or 0
    return values
