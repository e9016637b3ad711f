"""Held-out loss along training, against each budget that is known, and the contrast there."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from paribus import numbers
from paribus.analysis import Analysis
from paribus.report.figures.figure_rows import MOST_STEPS, is_large
from paribus.report.figures.style import (
    PANEL,
    PANEL_HEIGHT,
    TEXT,
    Figure,
    arm_colour,
    arm_dash,
    hover,
    names,
    rounded,
)
from paribus.results import Results
from paribus.results.curves import AXES, Axis, LossCurve

SECTION = "along"
BUDGETS: dict[Axis, str] = {
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}
MOST_ROWS = 12_000
LEAST_POINTS = 12
SEED, MEAN = "seed", "mean"
LOSS = "held-out loss (nats/token)"
Line = tuple[dict[str, Any], np.ndarray, np.ndarray]  # what it is, [P] budget spent, [P] losses


def loss_curves(results: Results) -> Figure | None:
    """Every trial's curve against tokens, FLOPs and seconds, a panel each; None without curves."""
    curves = results.trial_curves
    rows = [row for axis in AXES for row in _curve_rows(results, curves, axis)]
    if not rows:
        return None
    name, base = "loss-curves", _base("loss", LOSS, zero=False)
    color = arm_colour(results.study)
    point = hover("arm:N", "seed:N", _spent(), alt.Tooltip("loss:Q", format=".4f"))
    seeds = base.transform_filter(f"datum.kind == '{SEED}'").mark_line(
        strokeWidth=0.7, opacity=0.45
    )
    means = base.transform_filter(f"datum.kind == '{MEAN}'").mark_line(strokeWidth=2.2)
    thin = seeds.encode(color=color, detail=alt.Detail("seed:N"), tooltip=point)
    said = "Thin lines are seeds, thick ones"
    if is_large(results):
        band = base.mark_area(opacity=0.13, tooltip=None)
        thin = band.encode(y=alt.Y("low:Q", title=LOSS), y2=alt.Y2("high"), color=color)
        said = "The band reaches from the lowest seed to the highest; lines are"
    chart = alt.layer(thin, means.encode(color=color, strokeDash=arm_dash(results.study)))
    read = next(iter(curves.values())).predicted
    caption = (
        f"Loss of {read:,} held-out tokens along training. {said} the "
        f"means of loss and budget over seeds at the same step. {_how(results, rows)}"
    )
    return _faceted(name, "Held-out loss along training", caption, chart, rows)


def contrast_along(analysis: Analysis) -> Figure | None:
    """Every contrast along each budget with its interval; None where none is known."""
    study, called = analysis.study, names(analysis.study)
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
    level = numbers.level(study.inference.alpha)
    name = "contrast-along-training"
    title = "change (nats/token)"  # a longer one is higher than the figure
    base, color = _base("mean", title, zero=True), arm_colour(study)
    zero = alt.Chart().mark_rule(color=TEXT, opacity=0.5, tooltip=None).encode(y=alt.datum(0))
    band = base.mark_area(opacity=0.15, tooltip=None).encode(
        y=alt.Y("low:Q", title=title), y2=alt.Y2("high"), color=color
    )
    mean = alt.Tooltip("mean:Q", format="+.4f")
    lines = base.mark_line(strokeWidth=2.2).encode(
        color=color, strokeDash=arm_dash(study), tooltip=hover("arm:N", "against:N", _spent(), mean)
    )
    caption = (
        "Arm minus reference at the same seed and the same budget spent, in straight lines between "
        f"points. Bands are {level} intervals of the paired t, pointwise: at each point by itself, "
        "not of a whole curve at once. The end of the schedule is what the verdict rests on."
    )
    if any(one.left_out for one in analysis.along):
        caption += " Points where the loss of some seed is not finite are left out."
    return _faceted(
        name, "The contrast along training", caption, alt.layer(zero, band, lines), rows
    )


def _curve_rows(
    results: Results, curves: dict[tuple[str, int], LossCurve], axis: Axis
) -> list[dict[str, Any]]:
    """A row for each point of each seed, and of the mean of each arm."""
    called, found = names(results.study), []
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
                found += _band(called[arm], axis, spent, losses)
                continue
            lines.append(({"kind": MEAN}, spent, losses.mean(axis=0)))
        for about, spent, loss in lines:
            each = max(1, len(spent) // shown)
            found += [
                {"arm": called[arm], "budget": BUDGETS[axis], **about}
                | {"spent": rounded(x), "loss": rounded(y)}
                for x, y in zip(spent[::each].tolist(), loss[::each].tolist(), strict=True)
                if np.isfinite(y)
            ]
    return found


def _band(arm: str, axis: Axis, spent: np.ndarray, losses: np.ndarray) -> list[dict[str, Any]]:
    """The mean of an arm's curves, the lowest and the highest loss at each point, [S, P] of all."""
    about = {"arm": arm, "budget": BUDGETS[axis], "kind": MEAN}
    each = max(1, len(spent) // MOST_STEPS)
    return [
        about
        | {"spent": rounded(spent[i]), "loss": rounded(losses[:, i].mean())}
        | {"low": rounded(losses[:, i].min()), "high": rounded(losses[:, i].max())}
        for i in range(0, len(spent), each)
        if np.isfinite(losses[:, i]).all()
    ]


def _how(results: Results, rows: list[dict[str, Any]]) -> str:
    there = {row["budget"] for row in rows}
    told = []
    if BUDGETS["flops"] in there:
        told.append("FLOPs are those of matrix products, forward and backward.")
    if BUDGETS["seconds"] in there:
        told.append(
            "Seconds follow from the speed of each trial, measured in turn with the others."
            if results.curves_in_turn
            else "Seconds are by the clock of each trial, whatever else the machine did."
        )
    return " ".join(told) or "Nothing else of the budget is known."


def _base(value: str, title: str, *, zero: bool) -> alt.Chart:
    axis = alt.Axis(format="~s", tickCount=4, labelOverlap="greedy", labelFlush=True)
    return alt.Chart().encode(  # the facet has the data
        x=alt.X("spent:Q", title=None, scale=alt.Scale(nice=False), axis=axis),
        y=alt.Y(f"{value}:Q", title=title, scale=alt.Scale(zero=zero), axis=alt.Axis(tickCount=5)),
    )


def _spent() -> alt.Tooltip:
    return alt.Tooltip("spent:Q", format=".4~s", title="spent")


def _faceted(name: str, title: str, caption: str, chart: Any, rows: list[dict[str, Any]]) -> Figure:
    there = {row["budget"] for row in rows}
    facet = (
        chart.properties(width=PANEL, height=PANEL_HEIGHT)
        .facet(
            facet=alt.Facet(
                "budget:N", title=None, sort=[b for b in BUDGETS.values() if b in there]
            ),
            columns=3,
            data=alt.NamedData(name),
        )
        .resolve_scale(x="independent")
    )
    shown = {"panel": PANEL, "wide": True, "in_text": True}
    return Figure(name, SECTION, title, caption, facet, rows, **shown)
