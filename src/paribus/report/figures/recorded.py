"""Figures of recorded values: training, curves, held-out text, tasks and speed.

A drawing that a probe or measure declares says how its columns are drawn; the rest is what every
report has.
"""

from __future__ import annotations

import math
from collections import Counter
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
    PANEL,
    SHARES,
    SMALL,
    TEXT,
    WIDTH,
    Figure,
    Row,
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
    zero_line,
)
from paribus.report.tables import MOST_LINES, is_large
from paribus.results import Results
from paribus.results.curves import AXES, Axis
from paribus.study import Study
from paribus.study.trainer import STACKED

Series = tuple[str, int, str, np.ndarray, np.ndarray]  # arm, seed, column, steps [n], values [n]

MOST_STEPS = 200  # points of one line
MOST_ROWS = 12_000  # of one figure
FEWEST_STEPS = 12
MOST_NAMED = 3  # arms of a title
ALIKE = 5e-4  # values that differ by less than so much of themselves read the same
STATISTICS = ("mean", "q05", "q25", "q75", "q95")
FEWEST_IN_PART = 0.001  # of all tokens; fuller parts are drawn against another measure
MOST_PANEL_ROWS = 3_000
MOST_PANELS = 12  # of one figure
MOST_PLACES = 64  # of a curve; more, such as positions of a window, are averaged
MOST_TICKS = 6  # of a logarithmic axis
MOST_PARTS = 24  # beside each other
LEAST_POINTS = 12
LEAST_POINTS_OF_A_LINE = 3  # of what others logged
UNEQUAL = 1.01  # times as many tokens in a step are more
TRAIN_LOSS, STEP = "train_loss", "training step"
LOSS = "held-out loss (nats/token)"
BUDGETS: dict[Axis, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}
KINDS = {"training": "training", "prefill": "reading (prefill)", "decoding": "writing (decoding)"}
BANDS = "Lines are means over seeds; bands reach from the lowest seed to the highest."
SPANS = "Bars are means over seeds; lines reach from the lowest seed to the highest."


# Rows, read from the records: thinned, never averaged over steps


def series_of(results: Results, columns: Collection[str]) -> Iterator[Series]:
    """Yield the series of columns, of trials that have them."""
    for (arm, seed), table in results.trial_steps.items():
        probes = results.trial_probes[arm, seed]
        for column in columns:
            source = table if column in table.column_names else probes
            if column in source.column_names:
                line = finite_series(arm, seed, column, source["step"], source[column])
                if line is not None:
                    yield line


def finite_series(arm: str, seed: int, column: str, steps: Any, values: Any) -> Series | None:
    """Return steps and values as far as both are finite; None where none are."""
    steps, values = (np.asarray(each, dtype=float) for each in (steps, values))
    kept = np.isfinite(steps) & np.isfinite(values)
    return (arm, seed, column, steps[kept], values[kept]) if kept.any() else None


def over_steps(
    results: Results, series: Sequence[Series], parts: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[Row]:
    """Return {arm, seed, part, x, value} of series over training; `parts` are those of columns.

    Of more than MOST_LINES trials, each arm's seeds become {arm, part, x, value, low, high}.
    """
    is_many = len({member[:2] for member in series}) > MOST_LINES
    groups: dict[tuple[str, str], list[Series]] = {}
    for member in series:
        groups.setdefault((member[0], member[2]), []).append(member)
    rows = []
    for (arm, column), members in groups.items():
        steps, values = _on_shared_steps(members, most_rows // len(groups if is_many else series))
        head: Row = {"arm": results.study.called[arm]}
        head |= {"part": parts[column]} if parts[column] else {}
        if is_many:
            ends = (
                np.nanmean(values, axis=0),
                np.nanmin(values, axis=0),
                np.nanmax(values, axis=0),
            )
            lines = [(head, dict(zip(("value", "low", "high"), ends, strict=True)))]
        else:
            seeds = (head | {"seed": seed} for _, seed, *_ in members)
            lines = [(head, {"value": line}) for head, line in zip(seeds, values, strict=True)]
        rows += [
            head | {"x": step} | {key: rounded(each[i]) for key, each in line.items()}
            for head, line in lines
            for i, step in enumerate(steps.tolist())
            if np.isfinite(line["value"][i])  # NaN before its first step and after its last
        ]
    return rows


def _on_shared_steps(members: list[Series], n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return steps [n] that are chosen for all series, and their values [series, n]: a mean at a
    step is of every one that had begun and not ended. One that has no such step is read in a
    straight line between its own; outside its steps it is NaN."""
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


def over_seeds(rows: list[Row], *values: str) -> list[Row]:
    """Average these `values` over seeds, into one row for all rows that differ in nothing else; the
    extremes of the first value are `low` and `high`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(item for item in row.items() if item[0] not in ("seed", *values))
        groups.setdefault(key, []).append(row)
    summed = []
    for key, members in groups.items():
        means = {name: rounded(float(np.mean([row[name] for row in members]))) for name in values}
        each = [row[values[0]] for row in members]
        summed.append(dict(key) | means | {"low": min(each), "high": max(each)})
    return summed


def few(results: Results, rows: list[Row], *values: str) -> list[Row]:
    """Return the rows, of a large study those of all seeds together."""
    return over_seeds(rows, *values or ("value",)) if is_large(results) else rows


def finding(title: str, rows: list[Row], *, share: bool = False, sign: str = "") -> str:
    """Return a title with the mean over seeds of each arm's last value; of several parts the title.

    Args:
        share: whether numbers are shown as per cent.
        sign: `+` where they are changes.
    """

    def text(value: float) -> str:
        if share:
            return f"{100 * value:.3g}%"
        if abs(value) >= 1e4:
            return numbers.short(value)
        return f"{value:{sign}.{4 if abs(value) >= 1 else 3}g}"

    if len({row.get("part") for row in rows}) > 1:
        return title
    each: dict[str, list[float]] = {}
    for (arm, _), value in {(row["arm"], row.get("seed")): row["value"] for row in rows}.items():
        each.setdefault(arm, []).append(value)
    means = {arm: sum(values) / len(values) for arm, values in each.items()}
    lowest, highest = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    size = max(map(abs, means.values()))
    if len(means) > 1 and means[highest] - means[lowest] <= ALIKE * size:
        return f"{title}: {text(means[lowest])} in every arm"
    if len(means) > MOST_NAMED:
        return f"{title}: {text(means[lowest])} ({lowest}) to {text(means[highest])} ({highest})"
    return f"{title}: {', '.join(f'{text(value)} ({arm})' for arm, value in means.items())}"


def _with_note(rows: list[Row], note: str, *texts: str) -> str:
    """Return a caption, with the note on how rows that are means of many seeds are drawn."""
    return " ".join(filter(None, (*texts, note if "low" in rows[0] else "")))


def _line_figure(
    study: Study,
    head: tuple[str, str, str],
    rows: list[Row],
    x: alt.X,
    axis: str,
    *,
    labels: Collection[str] = (),
    own: str = "y",
    below: Sequence[alt.Chart] = (),
    height: int = HEIGHT,
    log: bool = False,
    **look: Any,
) -> Figure:
    """Return a figure of lines, in a panel for each of `labels` if there are any.

    Args:
        head: name, title and caption.
        own: the axis that each panel has for itself.
        below: what is drawn below the lines.
    """
    name, title, caption = head
    chart = alt.layer(*below, *lines(study, rows, x, axis, name=None if labels else name, **look))
    if labels:
        recorded = {row["part"] for row in rows}
        chart = panels(chart, [label for label in labels if label in recorded], name, own=own)
        chart = chart.resolve_axis(x="independent") if own == "y" else chart
    else:
        chart = chart.properties(width=WIDTH, height=height)
    panel, wide = PANEL if labels else None, bool(labels)
    return Figure(name, "along", title, caption, chart, rows, log=log, panel=panel, wide=wide)


# Along training


def over_training(results: Results, drawing: Drawing) -> Figure | None:
    """Return a column over training, or several parts, a panel for each."""
    is_single = drawing.how == "trend"
    parts = dict(list(drawing.columns.items())[:MOST_PANELS])
    limit = MOST_ROWS if is_single else MOST_PANEL_ROWS
    rows = over_steps(results, list(series_of(results, parts)), parts, most_rows=limit)
    if not rows:
        return None
    name = figure_name(drawing.column) if is_single else f"{_before(drawing, '-')}-groups"
    title = finding(f"{drawing.title} at the end", rows, share=is_share(drawing.axis))
    caption = how(results, rows)
    if len(drawing.parts) > MOST_PANELS:
        caption += f" The first {MOST_PANELS} of {len(drawing.parts)} parts are drawn."
    labels = [] if is_single else list(parts.values())
    return _over_steps(results.study, (name, title, caption.strip()), rows, drawing.axis, labels)


def logged(results: Results) -> list[Figure]:
    """Return what other programs measured along their training, by the names of their metrics; with
    the training loss where nothing declares how it is drawn."""
    by_metric: dict[str, dict[tuple[str, int], Series]] = {}
    for trial, table in results.trial_series.items():
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
        label = metric.label if metric else readable(name)
        unit = f"{label} ({metric.unit})" if metric and metric.unit else label
        rows = over_steps(results, series, {name: ""})
        caption = f"As logged. {how(results, rows)}".strip()
        head = (figure_name(name), finding(f"{label} at the end", rows), caption)
        figures.append(_over_steps(results.study, head, rows, unit))
    return figures


def how(results: Results, rows: list[Row]) -> str:
    """Return how lines over training are drawn, and whether arms read alike at one step."""
    counts = [(trial.get("tokens"), trial.get("iterations")) for trial in results.trials.values()]
    each = [tokens / steps for tokens, steps in counts if tokens and steps]
    text = BANDS if "low" in rows[0] else ""
    if each and max(each) > UNEQUAL * min(each):
        text += (
            f" Arms read {min(each):,.0f} to {max(each):,.0f} tokens a step on average, so that at "
            "one step some have read more text."
        )
    return text.strip()


def _over_steps(
    study: Study,
    head: tuple[str, str, str],
    rows: list[Row],
    axis: str,
    labels: Collection[str] = (),
) -> Figure:
    """Return lines over steps, on a logarithmic axis if they span much."""
    lowest = min(row.get("low", row["value"]) for row in rows)
    highest = max(row["value"] for row in rows)
    scale = None
    if lowest > 0 and highest > LOG_FROM * lowest:
        scale = alt.Scale(type="log", nice=False)
    is_small = max(abs(lowest), abs(highest)) < SMALL or 0 < lowest < SMALL
    look = {"format": ".0e"} if is_small and not is_share(axis) else {}
    steps = alt.Axis(tickCount=3 if labels else 5, labelOverlap="greedy", labelFlush=True)
    x = alt.X("x:Q", title=STEP, scale=alt.Scale(nice=False), axis=steps)
    options: Any = {"labels": labels, "scale": scale, "log": lowest > 0, **look}
    return _line_figure(study, head, rows, x, axis, across=STEP, **options)


def loss_curves(results: Results) -> Figure | None:
    """Return every trial's curve against tokens, FLOPs and seconds; None without curves."""
    curves, called = results.trial_curves, results.study.called
    limit = max(MOST_ROWS // max(len(AXES) * len(curves), 1), LEAST_POINTS)
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
    title = finding("Held-out loss at the end", _first_budget(rows))
    rows = few(results, rows, "value", "x")
    read = next(iter(curves.values())).predicted
    caption = f"Loss of {read:,} held-out tokens. {how(results, rows)}".strip()
    if BUDGETS["seconds"] in {row["part"] for row in rows}:
        caption += (
            " Seconds follow from the speed of each trial, measured in turn with the others."
            if results.curves_in_turn
            else " Seconds are by the clock of each trial, whatever else the machine did."
        )
    return _by_budget(results.study, "loss-curves", title, caption, rows, LOSS)


def contrast_along(analysis: Analysis) -> Figure | None:
    """Return every contrast along each budget with its interval; None where none is known."""
    study = analysis.study
    every = 1 + sum(len(entry.spent) for entry in analysis.along) // MOST_ROWS
    rows = []
    for entry in analysis.along:
        head = {"arm": study.called[entry.arm], "part": BUDGETS[entry.axis]}
        each = (entry.spent, entry.contrast.mean, entry.contrast.low, entry.contrast.high)
        keys = ("x", "value", "low", "high")
        rows += [
            head | dict(zip(keys, map(rounded, point), strict=True))
            for point in list(zip(*each, strict=True))[::every]
        ]
    if not rows:
        return None
    caption = (
        "Arm minus reference at the same seed and budget. Bands are "
        f"{numbers.level(study.inference.alpha)} intervals of the paired t at each point by "
        "itself, not of a whole curve at once."
    )
    if any(entry.left_out for entry in analysis.along):
        caption += " Points where the loss of some seed is not finite are left out."
    title = finding("Change of held-out loss at the end", _first_budget(rows), sign="+")
    look = {"below": [zero_line()], "scale": alt.Scale(zero=True), "form": "+.4f"}
    parts = ("contrast-along-training", title, caption, rows, "change (nats/token)")
    return _by_budget(study, *parts, **look)


def _first_budget(rows: list[Row]) -> list[Row]:
    return [{**row, "part": ""} for row in rows if row["part"] == rows[0]["part"]]


def _by_budget(
    study: Study, name: str, title: str, caption: str, rows: list[Row], axis: str, **look: Any
) -> Figure:
    spent = alt.Axis(format="~s", tickCount=4, labelOverlap="greedy", labelFlush=True)
    x = alt.X("x:Q", title=None, scale=alt.Scale(nice=False), axis=spent)
    look |= {"labels": BUDGETS.values(), "own": "x", "across": "spent"}
    return replace(_line_figure(study, (name, title, caption), rows, x, axis, **look), in_text=True)


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
    name, axis = f"{_before(drawing)}-spread", drawing.axis
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
    caption = "Means, quartiles (thick) and 5th to 95th percentiles (thin)."
    chart = alt.layer(thin, thick, means).properties(width=WIDTH, height=HEIGHT)
    return Figure(name, drawing.section, title, caption, chart, rows)


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
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy")
    sort = alt.EncodingSortField("order", op="min")
    x = alt.X("x:O", title=drawing.across or None, sort=sort, axis=axis)
    name = f"{_before(drawing, '-')}-depth"
    return _across(results, drawing, name, "At the end of training.", rows, x)


def _across(
    results: Results, drawing: Drawing, name: str, caption: str, rows: list[Row], x: alt.X
) -> Figure:
    """Return lines over the parts."""
    rows = few(results, rows)
    head = (name, drawing.title, _with_note(rows, BANDS, caption))
    look: Any = {"across": drawing.across or "part"}
    return _line_figure(results.study, head, rows, x, drawing.axis, **look)


def _before(drawing: Drawing, joint: str = "_") -> str:
    return figure_name(drawing.column.split(PART)[0].strip(" /")).replace("_", joint)


def _beside(results: Results, rows: list[Row], name: str) -> alt.Chart:
    """Return a chart of parts beside each other, arm by arm in each."""
    return chart_of(name).encode(
        x=names_below(dict.fromkeys(row["part"] for row in rows), "part"),
        xOffset=alt.XOffset("arm:N", sort=list(results.study.called.values())),
        color=arm_colour(results.study, line=False),
    )


# On held-out text


def against(results: Results, drawing: Drawing) -> Figure | None:
    """Return a measure against another one, part by part; on the diagonal both are equal."""
    values = _values(results, drawing)
    others = _values(results, replace(drawing, column=drawing.against))
    tokens: Counter[tuple[str, int]] = Counter()
    for (arm, seed, _), (_, count) in values.items():
        tokens[arm, seed] += count
    points = {part: i for i, part in enumerate(dict.fromkeys(part for *_, part in values))}
    rows = [
        {
            **{"arm": results.study.called[key[0]], "seed": key[1], "part": key[2]},
            **{"point": points[key[2]], "x": others[key][0], "value": value},
        }
        for key, (value, count) in values.items()
        if key in others and count >= FEWEST_IN_PART * tokens[key[:2]]
    ]
    if not rows:
        return None
    caption = f"{drawing.note} Parts of fewer than one token in a thousand are left out.".strip()
    scale, below = None, []
    if all(0 <= row[key] <= 1 for row in rows for key in ("value", "x")):
        scale = alt.Scale(domain=[0, 1])
        ends = alt.Chart(alt.InlineData(values=[{"x": 0, "y": 0}, {"x": 1, "y": 1}]))
        line = ends.mark_line(color=TEXT, opacity=0.5, strokeDash=[4, 4], tooltip=None)
        below = [line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))]
    rows = few(results, rows, "value", "x")
    x = value_axis("x:Q", drawing.across, scale=scale, channel=alt.X)
    look: Any = {"below": below, "scale": scale, "height": HEIGHT + 60}
    look["across"] = drawing.across.removesuffix(SHARES)
    head = (_name(drawing), drawing.title, caption)
    return _line_figure(results.study, head, rows, x, drawing.axis, **look)


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
    caption = drawing.note
    if step > 1:
        caption += f" Each point is the mean of {step} neighbours."
    return _across(results, drawing, _name(drawing), caption.strip(), rows, x)


def parts(results: Results, drawing: Drawing) -> Figure | None:
    """Return the parts of a measure beside each other."""
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
    title, name = finding(drawing.title, rows, share=is_share(drawing.axis)), _name(drawing)
    rows = few(results, rows)
    caption = _with_note(rows, SPANS, drawing.note)
    if len(recorded) > MOST_PARTS:
        caption += f" The first {MOST_PARTS} of {len(recorded)} parts are drawn."
    drawn = dots(_beside(results, rows, name), rows, drawing.axis, width=14)
    chart = alt.layer(*drawn).properties(width=WIDTH, height=HEIGHT)
    return Figure(name, drawing.section, title, caption, chart, rows)


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
    caption = "The long line across is what guessing gives."
    return _by_panel(results, "tasks", title, caption, rows, axis, chance)


def throughput(results: Results) -> Figure | None:
    """Draw tokens per second, timed side by side if available, else during training."""
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
    return _by_panel(results, "throughput", title, caption, rows, "tokens per second", **look)


def _arms(results: Results) -> alt.X:
    return alt.X("arm:N", title=None, sort=[*results.study.called.values()], axis=None)


def _by_panel(
    results: Results,
    name: str,
    title: str,
    caption: str,
    rows: list[Row],
    axis: str,
    *below: alt.Chart,
    **look: Any,
) -> Figure:
    """Return dots for each arm, in a panel for each part."""
    rows = few(results, rows)
    base = chart_of(None).encode(x=_arms(results), color=arm_colour(results.study, line=False))
    drawn = alt.layer(*below, *dots(base, rows, axis, width=18, **look))
    chart = panels(drawn, list(dict.fromkeys(row["part"] for row in rows)), name, own="y")
    caption = _with_note(rows, SPANS, caption)
    return Figure(name, "evaluation", title, caption, chart, rows, panel=PANEL, wide=True)
