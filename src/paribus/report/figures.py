"""Every figure, defined once, from records alone.

The page shows them interactively; the same definition renders to a file. Each arm has one colour
everywhere (Okabe & Ito 2008: safe for colour-blind readers); text takes the page's own colour.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pyarrow as pa

from paribus.analysis import Analysis
from paribus.results import Results
from paribus.study import METRICS, Study

BASELINE_COLOUR = "#7a7a7a"
ARM_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8c6d31",
    "#7b4ab5",
    "#b5cf6b",
    "#e377c2",
)
WIDTH, HEIGHT = 620, 280
MOST_STEPS = 300  # points of one line; longer runs are thinned, never averaged
LOG_FROM = 5
TEXT = "currentColor"


def colours(study: Study) -> dict[str, str]:
    """The colour of every arm; what others are compared with is grey."""
    found, others = {}, 0
    for arm in study.arms:
        if arm == study.baseline:
            found[arm] = BASELINE_COLOUR
        else:
            found[arm] = ARM_COLOURS[others % len(ARM_COLOURS)]
            others += 1
    return found


def step_curves(results: Results, column: str, *, label: str) -> alt.TopLevelMixin:
    """A column of steps or probes over training: seeds are thin lines, their mean a thick one.

    The scale is logarithmic where values span more than a factor of LOG_FROM.
    """
    is_step = column in results.steps.column_names
    table = _thinned(results.steps if is_step else results.probe_column(column))
    rows = [
        {"arm": arm, "seed": seed, "step": step, "value": float(f"{value:.5g}")}
        for arm, seed, step, value in zip(
            *(table[name].to_pylist() for name in ("arm", "seed", "step", column)), strict=True
        )
        if value is not None and math.isfinite(value)
    ]
    values = [row["value"] for row in rows]
    log = bool(values) and min(values) > 0 and max(values) > LOG_FROM * min(values)
    scale = alt.Scale(type="log", nice=False, padding=8) if log else alt.Scale(zero=False)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X(
            "step:Q",
            title="training step",
            scale=alt.Scale(nice=False),
            axis=alt.Axis(tickCount=6, labelOverlap="greedy", labelFlush=False),
        ),
        y=alt.Y("value:Q", title=label, scale=scale),
        color=_arm_colour(results.study),
    )
    picked = alt.selection_point(fields=["arm"], bind="legend", name="picked")
    seeds = base.mark_line(strokeWidth=0.8).encode(
        detail="seed:N",
        opacity=alt.when(picked).then(alt.value(0.45)).otherwise(alt.value(0.04)),
        tooltip=["arm:N", "seed:N", "step:Q", alt.Tooltip("value:Q", format=".4g")],
    )
    mean = base.mark_line(strokeWidth=2.2).encode(
        strokeDash=alt.StrokeDash("arm:N", title=None, scale=_dashes(results.study)),
        y=alt.Y("mean(value):Q", title=label, scale=scale),
        opacity=alt.when(picked).then(alt.value(1)).otherwise(alt.value(0.08)),
    )
    chart = alt.layer(seeds.add_params(picked), mean).properties(width=WIDTH, height=HEIGHT)
    return _styled(chart)


def seed_pairs(analysis: Analysis, metric: str) -> alt.TopLevelMixin:
    """Every seed a line from its baseline to its arm, one panel per contrast."""
    study = analysis.study
    values = {arm: analysis.summary(arm, metric).values for arm in study.arms}
    rows = [
        {
            "contrast": f"{arm} against {reference}",
            "arm": name,
            "seed": seed,
            "value": values[name][seed],
            "side": side,
            "treatment": arm,
        }
        for arm, reference in study.contrasts
        for seed in values[arm]
        if seed in values[reference]
        for side, name in enumerate((reference, arm))
    ]
    info = METRICS[metric]
    title = f"{info.label} ({info.unit})" if info.unit else info.label
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X(
            "arm:N", title=None, sort=alt.EncodingSortField("side"), axis=alt.Axis(labelAngle=0)
        ),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
    )
    lines = base.mark_line(color=TEXT, opacity=0.5, strokeWidth=1.2).encode(detail="seed:N")
    points = base.mark_circle(size=60, opacity=1).encode(
        color=_arm_colour(study, legend=None),
        tooltip=["arm:N", "seed:N", alt.Tooltip("value:Q", format=f".{info.digits}f")],
    )
    chart = alt.layer(lines, points).properties(width=170, height=220)
    faceted = chart.facet(
        facet=alt.Facet("contrast:N", title=None, header=alt.Header(labelColor=TEXT)), columns=3
    ).resolve_scale(x="independent")
    return _styled(faceted)


def _thinned(steps: pa.Table) -> pa.Table:
    """At most MOST_STEPS steps of each trial: every k-th and the last."""
    if not len(steps):
        return steps
    step = steps["step"].to_numpy()
    last = int(step.max())
    every = max(1, math.ceil(last / MOST_STEPS))
    return steps.filter(pa.array((step % every == 0) | (step == last) | (step == 1)))


def _arm_colour(study: Study, **options: Any) -> alt.Color:
    palette = colours(study)
    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    return alt.Color("arm:N", title=None, scale=scale, **options)


def _dashes(study: Study) -> alt.Scale:
    """Lines that coincide are still told apart: those drawn later have gaps."""
    patterns = [[1, 0], [1, 0], [6, 4], [2, 3]]
    arms = list(study.arms)
    return alt.Scale(domain=arms, range=[patterns[min(i, 2 + i % 2)] for i in range(len(arms))])


def _styled(chart: Any) -> Any:
    return (
        chart.configure(background="transparent", font="system-ui, sans-serif")
        .configure_axis(
            labelColor=TEXT,
            titleColor=TEXT,
            domainColor=TEXT,
            tickColor=TEXT,
            gridColor=TEXT,
            gridOpacity=0.12,
            domainOpacity=0.4,
            tickOpacity=0.4,
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=12,
        )
        .configure_legend(labelColor=TEXT, labelFontSize=12, orient="top", symbolOpacity=1)
        .configure_view(stroke=None)
    )
