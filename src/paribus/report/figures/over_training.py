"""Training step by step, and the held-out loss and its contrast along each budget."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from paribus import numbers
from paribus.analysis import Analysis
from paribus.drawing import PART, Drawing
from paribus.metric import readable
from paribus.report.figures.figure_rows import (
    MOST_ROWS,
    MOST_STEPS,
    Curves,
    Series,
    finding,
    last_means,
    over_steps,
    rows_of,
)
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    PANEL,
    SMALL,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    figure_name,
    hover,
    is_share,
    mean_line,
    over,
    panels,
    rounded,
    seed_lines,
    share_axis,
    wrapped,
)
from paribus.report.tables import is_large
from paribus.results import Results
from paribus.results.curves import AXES, Axis, LossCurve
from paribus.study import Study
from paribus.study.trainer import STACKED

MOST_PANEL_ROWS = 3_000
MOST_PANELS = 12  # of one figure
LEAST_POINTS = 12
LEAST_POINTS_OF_A_LINE = 3  # of what others logged
TRAIN_LOSS = "train_loss"
SEED, MEAN = "seed", "mean"
ALIKE = 1.01  # times as many tokens in a step are as many
LOSS = "held-out loss (nats/token)"
BUDGETS: dict[Axis, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}
Line = tuple[dict[str, Any], np.ndarray, np.ndarray]  # what it is, [P] budget spent, [P] losses


def all_trends(curves: Curves) -> list[Figure]:
    """Return every trend that the records have: single columns, then those of several parts."""
    drawings = curves.results.drawings
    drawn = [_trend(curves, drawing) for drawing in drawings if drawing.how == "trend"]
    drawn += [_panels(curves, drawing) for drawing in drawings if drawing.how == "panels"]
    return [figure for figure in drawn if figure is not None]


def _trend(curves: Curves, drawing: Drawing) -> Figure | None:
    rows = over_steps(curves, drawing.columns)
    if not rows:
        return None
    name = figure_name(drawing.column)
    title, ends = finding(drawing.title, last_means(rows), share=is_share(drawing.axis))
    chart = _lines(curves.results.study, name, rows, drawing.axis)
    chart = chart.properties(width=WIDTH, height=HEIGHT)
    caption = f"{drawing.title} over training. {_about(curves.results, rows)} At the end: {ends}"
    log, in_text = _positive(rows), drawing.in_text
    return Figure(name, drawing.section, title, caption, chart, rows, log=log, in_text=in_text)


def all_series(results: Results) -> list[Figure]:
    """Return what other programs measured along their training, by the names of their metrics."""
    figures = []
    for name, series in _by_metric(results).items():
        if max(len(steps) for *_, steps, _ in series) < LEAST_POINTS_OF_A_LINE:
            continue
        metric = results.metrics.get(name)
        label = metric.label if metric else readable(name)
        unit = f"{label} ({metric.unit})" if metric and metric.unit else label
        rows = rows_of(results, series, {name: ""})
        title, ends = finding(label, last_means(rows))
        chart = _lines(results.study, figure_name(name), rows, unit)
        chart = chart.properties(width=WIDTH, height=HEIGHT)
        caption = f"{label} over training, as logged. {_about(results, rows)} At the end: {ends}"
        parts = (figure_name(name), "along", title, caption, chart, rows)
        figures.append(Figure(*parts, log=_positive(rows)))
    return figures


def _by_metric(results: Results) -> dict[str, list[Series]]:
    """Return what was measured along training, and the training loss where nothing declares how it
    is drawn, by metric; finite values alone."""
    by_metric: dict[str, list[Series]] = {}
    for (arm, seed), table in results.trial_series.items():
        names_ = table["metric"].to_numpy(zero_copy_only=False)
        steps, values = (table[column].to_numpy() for column in ("step", "value"))
        for name in dict.fromkeys(names_.tolist()):
            of_name = names_ == name
            _add_series(by_metric, arm, seed, name, steps[of_name], values[of_name])
    if results.study.trainer != STACKED:
        for (arm, seed), table in results.trial_steps.items():
            if TRAIN_LOSS in table.column_names:
                steps, values = (table[column].to_numpy() for column in ("step", TRAIN_LOSS))
                _add_series(by_metric, arm, seed, TRAIN_LOSS, steps, values)
    return by_metric


def _add_series(
    by_metric: dict[str, list[Series]],
    arm: str,
    seed: int,
    name: str,
    steps: np.ndarray,
    values: np.ndarray,
) -> None:
    at, readings = steps.astype(float), values.astype(float)
    kept = np.isfinite(at) & np.isfinite(readings)
    if kept.any() and not any(member[:2] == (arm, seed) for member in by_metric.get(name, ())):
        by_metric.setdefault(name, []).append((arm, seed, name, at[kept], readings[kept]))


def _panels(curves: Curves, drawing: Drawing) -> Figure | None:
    """Return several parts over training, one panel each."""
    first = dict(list(drawing.columns.items())[:MOST_PANELS])
    rows = over_steps(curves, first, most_rows=MOST_PANEL_ROWS)
    if not rows:
        return None
    if len(first) == 1:
        rows = [row | {"part": next(iter(first.values()))} for row in rows]
    drawn = [part for part in first.values() if any(row["part"] == part for row in rows)]
    before = drawing.column.split(PART)[0].strip(" /")
    name = figure_name(before).replace("_", "-") + "-groups"
    title, ends = finding(drawing.title, last_means(rows), share=is_share(drawing.axis))
    chart = _lines(curves.results.study, None, rows, drawing.axis)
    parts = alt.Facet("part:N", title=None, sort=drawn)
    facet = panels(chart, parts, name, own="y", labels=drawn)
    caption = (
        f"{drawing.title} over training, one panel for each part. {_about(curves.results, rows)}"
    )
    if len(drawing.parts) > MOST_PANELS:
        caption += f" The first {MOST_PANELS} of {len(drawing.parts)} parts are drawn."
    caption += f" At the end: {ends}"
    return Figure(
        name,
        drawing.section,
        title,
        caption,
        facet.resolve_axis(x="independent"),
        rows,
        log=_positive(rows),
        panel=PANEL,
        wide=True,
        in_text=drawing.in_text,
    )


def _about(results: Results, rows: list[dict[str, Any]]) -> str:
    band = "the band reaches from the lowest seed to the highest."
    thin = "Thin lines are seeds, thick ones their mean, and"
    text = f"{thin if 'value' in rows[0] else 'Lines are means over seeds, and'} {band}"
    counts = [(trial.get("tokens"), trial.get("iterations")) for trial in results.trials.values()]
    each = [tokens / steps for tokens, steps in counts if tokens and steps]
    if each and max(each) > ALIKE * min(each):
        text += (
            f" Arms read {min(each):,.0f} to {max(each):,.0f} tokens a step on average, so that at "
            "one step some have read more text."
        )
    return text


def _values(rows: list[dict[str, Any]]) -> list[float]:
    return [row["value"] if "value" in row else row["low"] for row in rows]


def _positive(rows: list[dict[str, Any]]) -> bool:
    return min(_values(rows)) > 0


def _lines(study: Study, name: str | None, rows: list[dict[str, Any]], unit: str) -> Any:
    """Return the band, the seeds and the mean of each arm; without a name, of one panel."""
    values = _values(rows)
    log = _positive(rows) and max(values) > LOG_FROM * min(values)
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
    small = max(map(abs, values)) < SMALL or 0 < min(values) < SMALL
    unit, written = share_axis(unit)
    looks: dict[str, Any] = written or ({"format": ".0e"} if small else {})
    axis = alt.Axis(tickCount=5, **looks)

    def y(field: str) -> alt.Y:
        return alt.Y(field, title=wrapped(unit), scale=scale, axis=axis)

    steps = alt.Axis(tickCount=5 if name else 3, labelOverlap="greedy", labelFlush=True)
    one_step = len({row["step"] for row in rows}) == 1  # a line of one point draws nothing
    base = (alt.Chart(alt.NamedData(name)) if name else alt.Chart()).encode(
        x=alt.X("step:Q", title="training step", scale=alt.Scale(nice=False), axis=steps),
        color=arm_colour(study),
    )
    low, mean, high, thin = "low:Q", "mean:Q", "high", []
    if "value" in rows[0]:
        low, mean, high = "min(value):Q", "mean(value):Q", "max(value)"
        told = hover("arm:N", "seed:N", "step:Q", alt.Tooltip("value:Q", format=".4g"))
        thin = [seed_lines(base, y("value:Q"), point=one_step).encode(tooltip=told)]
    band = base.mark_area(opacity=0.13, tooltip=None).encode(y=y(low), y2=alt.Y2(high))
    told = hover("arm:N", "step:Q", mean)
    return alt.layer(band, *thin, mean_line(base, y(mean), study, told, point=one_step))


def loss_curves(results: Results) -> Figure | None:
    """Return every trial's curve against tokens, FLOPs and seconds; None without curves."""
    curves, study = results.trial_curves, results.study
    rows = [row for axis in AXES for row in _curve_rows(results, curves, axis)]
    if not rows:
        return None
    base, color, y = _base(), arm_colour(study), _y("loss", LOSS, zero=False)
    if is_large(results):
        band = base.mark_area(opacity=0.13, tooltip=None)
        thin = band.encode(y=alt.Y("low:Q", title=LOSS), y2=alt.Y2("high"), color=color)
        text = "The band reaches from the lowest seed to the highest; lines are"
    else:
        point = hover("arm:N", "seed:N", _spent(), alt.Tooltip("loss:Q", format=".4f"))
        seeds = base.transform_filter(f"datum.kind == '{SEED}'")
        thin = seed_lines(seeds, y).encode(color=color, tooltip=point)
        text = "Thin lines are seeds, thick ones"
    means = base.transform_filter(f"datum.kind == '{MEAN}'").mark_line(strokeWidth=2.2)
    means = means.encode(y=y, color=color, strokeDash=arm_dash(study))
    read = next(iter(curves.values())).predicted
    caption = (
        f"Loss of {read:,} held-out tokens along training. {text} the "
        f"means of loss and budget over seeds at the same step. {_how(results, rows)}"
    )
    ends = [row for row in rows if row["budget"] == rows[0]["budget"]]
    title, text = finding("Held-out loss at the end", last_means(ends, "loss"))
    chart, caption = alt.layer(thin, means), f"{caption} At the end: {text}"
    return _by_budget("loss-curves", title, caption, chart, rows)


def contrast_along(analysis: Analysis) -> Figure | None:
    """Return every contrast along each budget with its interval; None where none is known."""
    study, called = analysis.study, analysis.study.called
    points = sum(len(one.spent) for one in analysis.along)
    every = -(-points // MOST_ROWS) if points else 1
    rows = [
        {
            "arm": called[one.arm],
            "against": called[one.reference],
            "budget": BUDGETS[one.axis],
            "spent": rounded(spent),
            "mean": rounded(mean),
            "low": rounded(low),
            "high": rounded(high),
        }
        for one in analysis.along
        for spent, mean, low, high in list(
            zip(one.spent, one.contrast.mean, one.contrast.low, one.contrast.high, strict=True)
        )[::every]
    ]
    if not rows:
        return None
    title = "change (nats/token)"  # a longer one is higher than the figure
    base, color = _base(), arm_colour(study)
    zero = alt.Chart().mark_rule(color=TEXT, opacity=0.5, tooltip=None).encode(y=alt.datum(0))
    band = base.mark_area(opacity=0.15, tooltip=None).encode(
        y=alt.Y("low:Q", title=title), y2=alt.Y2("high"), color=color
    )
    told = hover("arm:N", "against:N", _spent(), alt.Tooltip("mean:Q", format="+.4f"))
    lines = mean_line(base, _y("mean", title, zero=True), study, told).encode(color=color)
    level = numbers.level(study.inference.alpha)
    caption = (
        "Arm minus reference at the same seed and the same budget spent, in straight lines between "
        f"points. Bands are {level} intervals of the paired t, pointwise: at each point by itself, "
        "not of a whole curve at once. The end of the schedule is what the verdict rests on."
    )
    if any(one.left_out for one in analysis.along):
        caption += " Points where the loss of some seed is not finite are left out."
    chart = alt.layer(zero, band, lines)
    name = "contrast-along-training"
    ends = [row for row in rows if row["budget"] == rows[0]["budget"]]
    title, text = finding("Change of held-out loss at the end", last_means(ends, "mean"), sign="+")
    caption += f" At the end: {text}"
    return _by_budget(name, title, caption, chart, rows)


def _curve_rows(
    results: Results, curves: dict[tuple[str, int], LossCurve], axis: Axis
) -> list[dict[str, Any]]:
    """Return a row for each point of each seed, and of the mean of each arm."""
    called, rows = results.study.called, []
    shown = max(MOST_ROWS // max(len(AXES) * len(curves), 1), LEAST_POINTS)
    for arm in results.study.arms:
        lines: list[Line] = [
            ({"kind": SEED, "seed": seed}, spent, curve.loss)
            for (name, seed), curve in curves.items()
            if name == arm and (spent := curve.along(axis)) is not None
        ]
        if len({len(loss) for _, _, loss in lines}) == 1:
            spent = np.mean([spent for _, spent, _ in lines], axis=0)
            losses = np.array([loss for *_, loss in lines])
            if is_large(results):
                rows += _band(called[arm], axis, spent, losses)
                continue
            lines.append(({"kind": MEAN}, spent, losses.mean(axis=0)))
        for head, spent, loss in lines:
            each = max(1, len(spent) // shown)
            rows += [
                {"arm": called[arm], "budget": BUDGETS[axis], **head}
                | {"spent": rounded(x), "loss": rounded(y)}
                for x, y in zip(spent[::each].tolist(), loss[::each].tolist(), strict=True)
                if np.isfinite(y)
            ]
    return rows


def _band(arm: str, axis: Axis, spent: np.ndarray, losses: np.ndarray) -> list[dict[str, Any]]:
    """Return the mean, the lowest and the highest of an arm's losses [S, P] at each point."""
    head = {"arm": arm, "budget": BUDGETS[axis], "kind": MEAN}
    each = max(1, len(spent) // MOST_STEPS)
    return [
        head
        | {"spent": rounded(spent[i]), "loss": rounded(losses[:, i].mean())}
        | {"low": rounded(losses[:, i].min()), "high": rounded(losses[:, i].max())}
        for i in range(0, len(spent), each)
        if np.isfinite(losses[:, i]).all()
    ]


def _how(results: Results, rows: list[dict[str, Any]]) -> str:
    budgets = {row["budget"] for row in rows}
    sentences = []
    if BUDGETS["flops"] in budgets:
        sentences.append("FLOPs are those of matrix products, forward and backward.")
    if BUDGETS["seconds"] in budgets:
        sentences.append(
            "Seconds follow from the speed of each trial, measured in turn with the others."
            if results.curves_in_turn
            else "Seconds are by the clock of each trial, whatever else the machine did."
        )
    return " ".join(sentences) or "Nothing else of the budget is known."


def _base() -> alt.Chart:
    axis = alt.Axis(format="~s", tickCount=4, labelOverlap="greedy", labelFlush=True)
    x = alt.X("spent:Q", title=None, scale=alt.Scale(nice=False), axis=axis)
    return alt.Chart().encode(x=x)


def _y(value: str, title: str, *, zero: bool) -> alt.Y:
    return over(f"{value}:Q", title, zero=zero, axis={"tickCount": 5})


def _spent() -> alt.Tooltip:
    return alt.Tooltip("spent:Q", format=".4~s", title="spent")


def _by_budget(
    name: str, title: str, caption: str, chart: Any, rows: list[dict[str, Any]]
) -> Figure:
    budgets = {row["budget"] for row in rows}
    order = [budget for budget in BUDGETS.values() if budget in budgets]
    facet = panels(chart, alt.Facet("budget:N", title=None, sort=order), name, own="x")
    shown = {"panel": PANEL, "wide": True, "in_text": True}
    return Figure(name, "along", title, caption, facet, rows, **shown)
