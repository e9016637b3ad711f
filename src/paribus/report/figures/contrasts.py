"""Effects of arms on the endpoints: every seed as a line, every contrast with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt
import numpy as np

from paribus import numbers
from paribus.analysis import Analysis, Contrast
from paribus.report.figures.style import (
    LABEL_CHARACTERS,
    MOST_PANELS,
    PANEL,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    figure_name,
    hover,
    in_lines,
    panels,
    rounded,
    wrapped,
)
from paribus.report.tables import STATES, state_of
from paribus.statistics import Decided
from paribus.study import Endpoint, Study

ROW_PIXELS, BROKEN_ROW_PIXELS = 26, 32  # of a name in one line, and in two
SIDE_CHARACTERS, SIDE_LINES = 12, 3  # of a name below a panel
MOST_NAMED, MOST_TOLD = 2, 8  # contrasts in a title, and in a caption
MOST_PAIRS = 60  # lines of one contrast
LEAST_ROOM = 24  # of an axis, besides its labels
SHAPES = ("circle", "square", "diamond", "cross")


def pairs_name(metric: str) -> str:
    """Return the name of the figure of a metric's seed pairs."""
    return f"pairs-{figure_name(metric)}"


def forest_name(study: Study, endpoint: Endpoint) -> str:
    """Return the name of the figure of every contrast on a primary endpoint."""
    return "forest" if endpoint is study.primary else f"forest-{endpoint.metric}"


def seed_pairs(analysis: Analysis, metric: str) -> Figure | None:
    """Return every seed as a line from its baseline to its arm, one panel per contrast; where runs
    are no pairs, every run as a point."""
    study, called, declared = analysis.study, analysis.study.called, analysis.metrics[metric]
    pairs, rows = _pair_rows(analysis, metric)
    if not rows:
        return None
    name = pairs_name(metric)
    base = alt.Chart().encode(  # the facet has the data
        x=alt.X(
            "arm:N",
            title=None,
            sort=alt.EncodingSortField("side"),
            axis=alt.Axis(
                labelAngle=0,
                labelLimit=PANEL // 2,
                labelExpr=in_lines(called.values(), SIDE_CHARACTERS, SIDE_LINES),
            ),
        ),
        y=alt.Y(
            "value:Q",
            title=wrapped(declared.title),
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=5),
        ),
    )
    lines = base.mark_line(color=TEXT, opacity=0.45, strokeWidth=1.1).encode(
        detail=alt.Detail("seed:N")
    )
    value = alt.Tooltip("value:Q", format=f".{declared.shown_digits}f")
    points = base.mark_circle(size=42, opacity=1).encode(
        color=arm_colour(study, legend=False), tooltip=hover("arm:N", "seed:N", value)
    )
    facet = alt.Facet("contrast:N", title=None, sort=[called[arm] for arm, _ in pairs])
    above = {row["contrast"] for row in rows}
    drawn = alt.layer(lines, points) if study.is_paired else points
    chart = panels(drawn, facet, name, own="x", labels=above)
    label, left = declared.label, len(study.contrasts) - len(pairs)
    caption = f"{label[0].upper()}{label[1:]}: every seed is a line from its baseline to its arm."
    if not study.is_paired:
        caption = f"{label[0].upper()}{label[1:]}: every run is a point."
    most = max(analysis.summary(arm, metric).n for arm, _ in pairs)
    if most > MOST_PAIRS:
        caption += f" Of {most:,} pairs {MOST_PAIRS} are drawn, at even ranks by their change."
    if left:
        several = numbers.plural(left, "contrast")
        caption += f" {several} without a pair, or beyond {MOST_PANELS} panels, "
        caption += f"{'is' if left == 1 else 'are'} not here, but in the tables."
    title, wide = f"{label[0].upper()}{label[1:]}", len(pairs) > 2
    if not study.is_paired:
        return Figure(name, "endpoints", title, caption, chart, rows, panel=PANEL, wide=wide)
    rises = [_rises(analysis, arm, metric) for arm, _ in pairs]
    caption += (
        f" It rises {', '.join(rises[:MOST_TOLD])}{' ...' if len(rises) > MOST_TOLD else '.'}"
    )
    if len(pairs) <= MOST_NAMED:
        title += f" rises {', '.join(rises)}"
    else:
        counts = [_risen(analysis, arm, metric) for arm, _ in pairs]
        least, most = min(counts), max(counts)
        some = f"{least[0]}" if least[0] == most[0] else f"{least[0]} to {most[0]}"
        title += f" rises at {some} of {numbers.plural(most[1], 'seed')}"
        if least[0] == most[0] == 0:
            title = f"{title.rpartition(' rises at ')[0]} rises at none of {most[1]} seeds"
    return Figure(name, "endpoints", title, caption, chart, rows, panel=PANEL, wide=wide)


def _rises(analysis: Analysis, arm: str, metric: str) -> str:
    """Return at how many seeds an arm is above its reference: `at 5 of 5 seeds in RMSNorm`."""
    risen, n = _risen(analysis, arm, metric)
    return f"at {risen} of {numbers.plural(n, 'seed')} in {analysis.study.called[arm]}"


def _risen(analysis: Analysis, arm: str, metric: str) -> tuple[int, int]:
    paired = analysis.contrast(arm, metric).paired
    deltas = [pair.delta for pair in paired.pairs] if paired else []
    return sum(delta > 0 for delta in deltas), len(deltas)


def _pair_rows(
    analysis: Analysis, metric: str
) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """Return contrasts that have a pair, at most MOST_PANELS, and a row for each side of it."""
    study, called = analysis.study, analysis.study.called
    values = {arm: analysis.summary(arm, metric).values for arm in study.arms}
    pairs = [
        (arm, reference)
        for arm, reference in study.contrasts
        if values[arm].keys() & values[reference].keys()
        or (not study.is_paired and values[arm] and values[reference])
    ][:MOST_PANELS]
    declared = analysis.metrics[metric]
    digits, relative = declared.digits + 2, declared.of_pair
    shown = {pair: _shown(values[pair[0]], values[pair[1]], relative) for pair in pairs}
    rows = [
        {
            "contrast": called[arm]
            if reference == study.baseline
            else f"{called[arm]} against {called[reference]}",
            "arm": called[name],
            "of": called[arm],
            "side": side,
            "seed": seed,
            "value": 1.0
            if relative and not side
            else declared.shown(round(values[name][seed], digits)),
        }
        for arm, reference in pairs
        for seed in (shown[arm, reference] if study.is_paired else study.seeds)
        for side, name in enumerate((reference, arm))
        if seed in values[name] or (relative and not side)
    ]
    return pairs, rows


def _shown(ours: dict[int, float], theirs: dict[int, float], relative: bool) -> Iterable[int]:
    """Return the seeds that have a line: all, or MOST_PAIRS at even ranks by their change."""
    there = [seed for seed in ours if seed in theirs]
    if len(there) <= MOST_PAIRS:
        return there
    ranked = sorted(there, key=lambda seed: ours[seed] - (0 if relative else theirs[seed]))
    return [ranked[i] for i in np.linspace(0, len(ranked) - 1, MOST_PAIRS).round().astype(int)]


def forest(analysis: Analysis, endpoint: Endpoint) -> Figure | None:
    """Return a primary endpoint: every contrast with its interval, the margin and the finding."""
    study, metric = analysis.study, analysis.metrics[endpoint.metric]
    contrasts = [c for c in analysis.contrasts if c.metric == endpoint.metric]
    sign = 1 if metric.better == "lower" else -1
    rows = sorted(_rows(analysis, contrasts), key=lambda row: sign * row["mean"])
    if not rows:
        return None
    name = forest_name(study, endpoint)
    margin = metric.shown(contrasts[0].margin or 0)
    sides = ("better", "worse") if metric.better == "lower" else ("worse", "better")
    change = f"change in {metric.change_unit}" if metric.change_unit not in ("", "1") else "change"
    title = f"\N{LEFTWARDS ARROW} {sides[0]} | {change} | {sides[1]} \N{RIGHTWARDS ARROW}"
    most = 1.05 * max([margin, *(abs(row[end]) for row in rows for end in ("low", "high"))])
    around_zero = alt.Scale(domain=[-most, most], nice=False)
    said = f"\N{PLUS-MINUS SIGN}{metric.stated_text(endpoint.margin or 0)}"
    ends = alt.Chart(alt.InlineData(values=[{"from": -margin, "zero": 0, "to": margin}]))
    band = ends.mark_rect(color=TEXT, opacity=0.1, tooltip=None).encode(
        x=alt.X("from:Q", title=title, scale=around_zero), x2=alt.X2("to:Q")
    )
    label = ends.mark_text(
        text=f"within {said}: too small to matter",
        color=TEXT,
        opacity=0.75,
        fontSize=10,
        baseline="bottom",
        tooltip=None,
    ).encode(x=alt.X("zero:Q", title=title), y=alt.value(-3))
    chart = alt.layer(
        band,
        *([label] if margin else []),
        *_by_arm(study, alt.Chart(alt.NamedData(name)), rows, title, around_zero),
    ).properties(width=WIDTH, height=_row_pixels(rows) * len(rows) + 10)
    level = numbers.level(study.inference.alpha)
    band_of = (
        f"The grey band is the margin of {said}: changes within it are too small to matter."
        if margin
        else "No margin was stated."
    )
    caption = (
        f"Change of {metric.label}, each arm minus its reference, with its unadjusted {level} "
        f"interval. {band_of} Shapes go by Holm's p."
    )
    changes = [
        f"{row['arm']} {numbers.signed(row['mean'], metric.shown_change_digits)}" for row in rows
    ]
    heading = f"Change of {metric.short_title}"
    heading += f": {', '.join(changes)}" if len(rows) <= MOST_NAMED else ""
    spans = [f"{one} ({row['interval']})" for one, row in zip(changes, rows, strict=True)]
    caption += f" {'; '.join(spans[:MOST_TOLD])}{' ...' if len(rows) > MOST_TOLD else '.'}"
    return Figure(name, "endpoints", heading, caption, chart, rows, stretch=False)


def _row_pixels(rows: list[dict[str, Any]]) -> int:
    broken = any(len(row["arm"]) > LABEL_CHARACTERS for row in rows)
    return BROKEN_ROW_PIXELS if broken else ROW_PIXELS


def _rows(analysis: Analysis, contrasts: list[Contrast]) -> list[dict[str, Any]]:
    called, rows = analysis.study.called, []
    for c in contrasts:
        says = c.decided
        if says is None:
            continue
        mean, *ends = map(c.declared.shown, (says.mean, *ends_of(says)))
        interval = f"{ends[0]:+.4g} to {ends[1]:+.4g}" if is_bounded(says) else "unbounded"
        row = {
            "arm": called[c.arm],
            "against": called[c.reference],
            "metric": c.declared.short_title,
            "mean": rounded(mean),
            "low": rounded(ends[0]),
            "high": rounded(ends[1]),
            "interval": interval if says.has_interval else "no interval",
            "n": says.n,
        }
        if c.primary:
            row["state"] = state_of(c, analysis.study.inference.alpha)
        rows.append(row)
    return rows


def state_shapes(rows: list[dict[str, Any]]) -> alt.Shape:
    """Return the shape of a mean by what its test found (`state` of `rows`)."""
    there = {row["state"] for row in rows}
    return alt.Shape(
        "state:N",
        title=None,
        scale=alt.Scale(domain=list(STATES), range=list(SHAPES)),
        # Beside long names of arms no three fit.
        legend=alt.Legend(
            values=[s for s in STATES if s in there],
            symbolFillColor=TEXT,
            columns=min(len(there), 2),
        ),
    )


def _by_arm(
    study: Study,
    chart: alt.Chart,
    rows: list[dict[str, Any]],
    title: str,
    scale: alt.Scale | None = None,
) -> list[alt.Chart]:
    """Return an interval for each arm of `rows`; shapes say what tests found, where `rows` do."""
    called, there = study.called, {row["arm"] for row in rows}
    order = [called[arm] for arm, _ in study.contrasts if called[arm] in there]
    if scale is not None:  # one endpoint: as its rows stand
        order = [row["arm"] for row in rows]
    told = hover(
        "arm:N",
        "against:N",
        alt.Tooltip("mean:Q", format="+.4g"),
        "interval:N",
        alt.Tooltip("n:Q", title="seed pairs" if study.is_paired else "runs of the smaller arm"),
    )
    shape = state_shapes(rows) if "state" in rows[0] else None
    axis = alt.Axis(labelExpr=in_lines(order, LABEL_CHARACTERS))
    return intervals(
        study, chart, alt.Y("arm:N", title=None, sort=order, axis=axis), told, title, shape, scale
    )


def intervals(
    study: Study,
    chart: alt.Chart,
    y: alt.Y,
    told: list[alt.Tooltip],
    title: str,
    shape: alt.Shape | None,
    scale: alt.Scale | None = None,
) -> list[alt.Chart]:
    """Return zero, a line from `low` to `high` and a mark at `mean` for each row."""
    base = chart.encode(y=y, color=arm_colour(study, legend=False), tooltip=told)
    zero = chart.mark_rule(color=TEXT, opacity=0.5, tooltip=None)
    axis = alt.Axis(tickCount=5, labelOverlap="greedy")
    rules = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title=title, axis=axis, scale=scale or alt.Scale(zero=True)),
        x2=alt.X2("high:Q"),
    )
    points = base.mark_point(filled=True, size=80, opacity=1).encode(
        x=alt.X("mean:Q", title=title, axis=axis)
    )
    if shape is not None:
        points = points.encode(shape=shape)
    return [zero.encode(x=alt.datum(0)), rules, points]


def ends_of(says: Decided) -> tuple[float, float]:
    """Return the ends of an interval's line; of no length if there is none: a dot stands alone."""
    ends = says.interval
    return (ends.low, ends.high) if is_bounded(says) else (says.mean, says.mean)


def is_bounded(says: Decided) -> bool:
    """Return whether a test has an interval, and it has both ends."""
    ends = says.interval
    return says.has_interval and math.isfinite(ends.low) and math.isfinite(ends.high)
