"""Figures of recorded values: training, curves, held-out text, tasks and speed.

A probe or measure declares with a `Drawing` how its columns are drawn. The other figures are in
every report.
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
MOST_PARTS = 24  # beside each other
LEAST_POINTS_OF_A_LINE = 3  # of what others logged
TRAIN_LOSS, STEP = "train_loss", "training step"
LOSS = "held-out loss (nats/token)"
BUDGETS: dict[Axis, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}


# Rows, read from the records: thinned, never averaged over steps


def series_of(results: Results, columns: Collection[str]) -> Iterator[Series]:
    """Yield the series of each column in each trial that has it."""
    probes = results.read_each("probes.parquet")
    for (arm, seed), table in results.trial_steps.items():
        sources = (table, probes[arm, seed])
        for column in columns:
            for source in [table for table in sources if column in table.column_names][:1]:
                line = finite_series(arm, seed, column, source["step"], source[column])
                if line is not None:
                    yield line


def finite_series(arm: str, seed: int, column: str, steps: Any, values: Any) -> Series | None:
    """Return the series of points with finite step and value, or None if none exist."""
    steps, values = (np.asarray(each, dtype=float) for each in (steps, values))
    kept = np.isfinite(steps) & np.isfinite(values)
    return (arm, seed, column, steps[kept], values[kept]) if kept.any() else None


def over_steps(
    results: Results, series: Sequence[Series], parts: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[Row]:
    """Return rows {arm, seed, part, x, value} of series over training.

    Args:
        parts: {column: part}.
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

    A series is interpolated linearly between its own steps, and is NaN before its first step and
    after its last. So the mean at a step covers all series that include the step.
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
    """Return a figure of a column over training, with a panel for each part."""
    parts = dict(list(drawing.columns.items())[:MOST_PANELS])
    limit = MOST_ROWS if drawing.how == "trend" else MOST_ROWS // 4
    rows = over_steps(results, list(series_of(results, parts)), parts, most_rows=limit)
    if not rows:
        return None
    caption = ""
    if len(drawing.parts) > MOST_PANELS:
        caption = f"The first {MOST_PANELS} of {len(drawing.parts)} parts are drawn."
    return _over_steps(results, (_name(drawing), drawing.title, caption), rows, drawing.axis)


def logged(results: Results) -> list[Figure]:
    """Return figures of the metrics that other programs logged during training.

    They include the training loss of trainers other than the built-in one.
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
        if max(len(steps) for *_, steps, _ in series) < LEAST_POINTS_OF_A_LINE:
            continue
        metric = results.metrics.get(name)
        label, unit = (metric.label, metric.title) if metric else (readable(name),) * 2
        rows = over_steps(results, series, {name: ""})
        figures.append(_over_steps(results, (figure_name(name), label, "As logged."), rows, unit))
    return figures


def _over_steps(results: Results, head: tuple[str, str, str], rows: list[Row], axis: str) -> Figure:
    """Return a figure of lines over steps, with a panel per part.

    The value axis is logarithmic if the values span a wide range.
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
    """Return a figure of loss against tokens, FLOPs and seconds, or None without curves."""
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
    caption = f"Loss of {read:,} held-out tokens. Seconds are from speeds timed in turns."
    drawn = lines(results.study, rows, _spent(), LOSS)
    return _by_budget("loss-curves", "Held-out loss", caption, rows, drawn)


def contrast_along(analysis: Analysis) -> Figure | None:
    """Return a figure of every contrast along each budget, with intervals; None without data."""
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
        f"{numbers.level(study.inference.alpha)} intervals of the paired t, not valid for a whole "
        "curve at once."
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
    """Return a figure of each part's distribution at its last recorded step."""
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
    """Return a figure of all parts in their order, such as depths, at the end of training."""
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
    """Return a figure of a measure over its numbered parts, such as positions.

    If there are many parts, only some of them are drawn.
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
    """Return a figure of one measure against another, with a point per part and a diagonal."""
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
    """Return a figure of a measure's parts side by side."""
    values, called = _values(results, drawing), results.study.called
    recorded = list(dict.fromkeys(part for *_, part in values))
    if drawing.parts:
        recorded = [part for part in drawing.parts if part in recorded]
    rows = [
        {"arm": called[arm], "seed": seed, "part": part, "value": value}
        for shown in recorded[:MOST_PARTS]
        for (arm, seed, part), (value, _) in values.items()
        if part == shown
    ]
    if not rows:
        return None
    caption = drawing.note
    if len(recorded) > MOST_PARTS:
        caption += f" The first {MOST_PARTS} of {len(recorded)} parts are drawn."
    base = _beside(results, rows, drawing)
    seeds = base.mark_circle(size=28, opacity=0.55).encode(
        y=value_axis("value:Q", drawing.axis), detail=alt.Detail("seed:N")
    )
    means = base.mark_tick(width=14, thickness=2.5)
    means = means.encode(y=value_axis("mean(value):Q", drawing.axis))
    return _single(drawing, caption, rows, [seeds, means])


def _lines(
    results: Results,
    drawing: Drawing,
    caption: str,
    rows: list[Row],
    x: alt.X,
    below: Sequence[Any] = (),
    **look: Any,
) -> Figure | None:
    """Return a figure with a line per arm over the parts, or None without rows."""
    if not rows:
        return None
    drawn = lines(results.study, rows, x, drawing.axis, name=_name(drawing), **look)
    return _single(drawing, caption, rows, [*below, *drawn])


def _single(drawing: Drawing, caption: str, rows: list[Row], drawn: Sequence[Any]) -> Figure:
    chart = alt.layer(*drawn).properties(width=WIDTH, height=HEIGHT)
    return Figure(_name(drawing), drawing.section, drawing.title, caption.strip(), chart, rows)


def _beside(results: Results, rows: list[Row], drawing: Drawing) -> alt.Chart:
    """Return a chart with parts side by side, and the arms side by side within each part."""
    return chart_of(_name(drawing)).encode(
        x=names_below(dict.fromkeys(row["part"] for row in rows), "part"),
        xOffset=alt.XOffset("arm:N", sort=list(results.study.called.values())),
        color=arm_colour(results.study, line=False),
    )


def _name(drawing: Drawing) -> str:
    """Return the figure's name: the column's name with `how` in place of the part."""
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
