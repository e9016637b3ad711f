"""Training step by step, and the held-out loss and its contrast along each budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from paribus import numbers
from paribus.analysis import Analysis
from paribus.drawing import PART, Drawing
from paribus.metric import readable
from paribus.report.figures.rows import MOST_ROWS, Row, few, finding, over_steps, series_of
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    PANEL,
    SMALL,
    WIDTH,
    Figure,
    figure_name,
    is_share,
    lines,
    panels,
    rounded,
    zero_line,
)
from paribus.results import Results
from paribus.results.curves import AXES, Axis
from paribus.study import Study
from paribus.study.trainer import STACKED

MOST_PANEL_ROWS = 3_000
MOST_PANELS = 12  # of one figure
LEAST_POINTS = 12
LEAST_POINTS_OF_A_LINE = 3  # of what others logged
TRAIN_LOSS = "train_loss"
UNEQUAL = 1.01  # times as many tokens in a step are more
LOSS = "held-out loss (nats/token)"
BUDGETS: dict[Axis, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}
BANDS = "Lines are means over seeds; bands reach from the lowest seed to the highest."


def over_training(results: Results, drawing: Drawing) -> Figure | None:
    """Return a column over training, or several parts, a panel for each."""
    is_single = drawing.how == "trend"
    parts = dict(list(drawing.columns.items())[:MOST_PANELS])
    limit = MOST_ROWS if is_single else MOST_PANEL_ROWS
    rows = over_steps(results, list(series_of(results, parts)), parts, most_rows=limit)
    if not rows:
        return None
    title = finding(f"{drawing.title} at the end", rows, share=is_share(drawing.axis))
    caption, name = how(results, rows), figure_name(drawing.column)
    if not is_single:
        name = figure_name(drawing.column.split(PART)[0].strip(" /")).replace("_", "-") + "-groups"
    chart = _over_steps(results.study, rows, drawing.axis, name if is_single else None)
    if not is_single:
        recorded = {row["part"] for row in rows}
        drawn = [part for part in parts.values() if part in recorded]
        chart = panels(chart, drawn, name, own="y").resolve_axis(x="independent")
        if len(drawing.parts) > MOST_PANELS:
            caption += f" The first {MOST_PANELS} of {len(drawing.parts)} parts are drawn."
    options = {} if is_single else {"panel": PANEL, "wide": True}
    options |= {"log": _lowest(rows) > 0, "in_text": drawing.in_text}
    return Figure(name, drawing.section, title, caption.strip(), chart, rows, **options)


def logged(results: Results) -> list[Figure]:
    """Return what other programs measured along their training, by the names of their metrics."""
    figures = []
    for name, by_trial in _by_metric(results).items():
        series = [(*trial, name, *line) for trial, line in by_trial.items()]
        if max(len(steps) for *_, steps, _ in series) < LEAST_POINTS_OF_A_LINE:
            continue
        metric = results.metrics.get(name)
        label = metric.label if metric else readable(name)
        unit = f"{label} ({metric.unit})" if metric and metric.unit else label
        rows = over_steps(results, series, {name: ""})
        chart = _over_steps(results.study, rows, unit, figure_name(name))
        title, caption = (
            finding(f"{label} at the end", rows),
            f"As logged. {how(results, rows)}".strip(),
        )
        parts = (figure_name(name), "along", title, caption, chart, rows)
        figures.append(Figure(*parts, log=_lowest(rows) > 0))
    return figures


def _by_metric(results: Results) -> dict[str, dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]]:
    """Return steps and values by metric and trial, finite alone; with the training loss where
    nothing declares how it is drawn."""
    by_metric: dict[str, dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]] = {}

    def add(trial: tuple[str, int], name: str, steps: np.ndarray, values: np.ndarray) -> None:
        steps, values = steps.astype(float), values.astype(float)
        kept = np.isfinite(steps) & np.isfinite(values)
        if kept.any():
            by_metric.setdefault(name, {}).setdefault(trial, (steps[kept], values[kept]))

    for trial, table in results.trial_series.items():
        names = table["metric"].to_numpy(zero_copy_only=False)
        steps, values = table["step"].to_numpy(), table["value"].to_numpy()
        for name in dict.fromkeys(names.tolist()):
            add(trial, name, steps[names == name], values[names == name])
    if results.study.trainer != STACKED:
        for trial, table in results.trial_steps.items():
            if TRAIN_LOSS in table.column_names:
                add(trial, TRAIN_LOSS, table["step"].to_numpy(), table[TRAIN_LOSS].to_numpy())
    return by_metric


def how(results: Results, rows: list[Row]) -> str:
    """Return how lines over training are drawn, and whether arms read alike at one step."""
    text = BANDS if "low" in rows[0] else ""
    counts = [(trial.get("tokens"), trial.get("iterations")) for trial in results.trials.values()]
    each = [tokens / steps for tokens, steps in counts if tokens and steps]
    if each and max(each) > UNEQUAL * min(each):
        text += (
            f" Arms read {min(each):,.0f} to {max(each):,.0f} tokens a step on average, so that at "
            "one step some have read more text."
        )
    return text.strip()


def _lowest(rows: list[Row]) -> float:
    return min(row.get("low", row["value"]) for row in rows)


def _over_steps(study: Study, rows: list[Row], unit: str, name: str | None = None) -> Any:
    """Return lines over steps; without a name, of one panel."""
    lowest, highest = _lowest(rows), max(row["value"] for row in rows)
    log = lowest > 0 and highest > LOG_FROM * lowest
    scale = alt.Scale(type="log", nice=False) if log else None
    is_small = max(abs(lowest), abs(highest)) < SMALL or 0 < lowest < SMALL
    written = {"format": ".0e"} if is_small and not is_share(unit) else {}
    steps = alt.Axis(tickCount=5 if name else 3, labelOverlap="greedy", labelFlush=True)
    x = alt.X("x:Q", title="training step", scale=alt.Scale(nice=False), axis=steps)
    options = {"across": "training step", "name": name, "scale": scale}
    chart = alt.layer(*lines(study, rows, x, unit, **options, **written))
    return chart.properties(width=WIDTH, height=HEIGHT) if name else chart


# Along budgets


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
    drawn = lines(results.study, rows, _spent(), LOSS, across="spent")
    return _by_budget("loss-curves", title, caption, alt.layer(*drawn), rows)


def contrast_along(analysis: Analysis) -> Figure | None:
    """Return every contrast along each budget with its interval; None where none is known."""
    study, called = analysis.study, analysis.study.called
    every = 1 + sum(len(entry.spent) for entry in analysis.along) // MOST_ROWS
    rows = []
    for entry in analysis.along:
        head = {"arm": called[entry.arm], "part": BUDGETS[entry.axis]}
        each = (entry.spent, entry.contrast.mean, entry.contrast.low, entry.contrast.high)
        keys = ("x", "value", "low", "high")
        rows += [
            head | dict(zip(keys, map(rounded, point), strict=True))
            for point in list(zip(*each, strict=True))[::every]
        ]
    if not rows:
        return None
    level = numbers.level(study.inference.alpha)
    caption = (
        "Arm minus reference at the same seed and budget, in straight lines between points. Bands "
        f"are {level} intervals of the paired t at each point by itself, not of a whole curve at "
        "once."
    )
    if any(entry.left_out for entry in analysis.along):
        caption += " Points where the loss of some seed is not finite are left out."
    title = finding("Change of held-out loss at the end", _first_budget(rows), sign="+")
    options = {"across": "spent", "scale": alt.Scale(zero=True), "form": "+.4f"}
    drawn = lines(study, rows, _spent(), "change (nats/token)", **options)
    chart = alt.layer(zero_line(), *drawn)
    return _by_budget("contrast-along-training", title, caption, chart, rows)


def _first_budget(rows: list[Row]) -> list[Row]:
    return [{**row, "part": ""} for row in rows if row["part"] == rows[0]["part"]]


def _spent() -> alt.X:
    axis = alt.Axis(format="~s", tickCount=4, labelOverlap="greedy", labelFlush=True)
    return alt.X("x:Q", title=None, scale=alt.Scale(nice=False), axis=axis)


def _by_budget(name: str, title: str, caption: str, chart: Any, rows: list[Row]) -> Figure:
    shown = {row["part"] for row in rows}
    drawn = [budget for budget in BUDGETS.values() if budget in shown]
    facet = panels(chart, drawn, name, own="x")
    options: Mapping[str, Any] = {"panel": PANEL, "wide": True, "in_text": True}
    return Figure(name, "along", title, caption, facet, rows, **options)
