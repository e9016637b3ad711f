"""Figures of tuning: every candidate's score, the choice, and the change at equal values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from paribus import numbers
from paribus.analysis import Analysis, Tuned
from paribus.report.cells import join
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    SMALL,
    TEXT,
    WIDTH,
    Figure,
    Row,
    arm_colour,
    arm_dash,
    chart_of,
    figure_name,
    panels,
    rounded,
    value_axis,
    zero_line,
)
from paribus.study import LEARNING_RATE, Candidate, open_edges, values_text
from paribus.study.tuning import Value

PANEL, PANEL_HEIGHT = 250, 220
SIZE = {"columns": 2, "width": PANEL, "height": PANEL_HEIGHT}
FEW_PANELS = 4  # stand in half of a page
MOST_NAMED = 3  # arms with one choice that a title names
MOST_TICKS = 12  # values that are all named on the axis
CROSS = "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7"
# The mark of a choice, by where it stands among the values tried: inside, or at which edge.
STATES = {0: "chosen", -1: "chosen: lower edge", 1: "chosen: upper edge"}
SHAPES = dict(zip(STATES.values(), ("diamond", "triangle-left", "triangle-right"), strict=True))


def tuning_figures(analysis: Analysis) -> list[Figure]:
    """Return the figures of tuning.

    Of several keys there is a surface over the first key for each other one. Then follow a curve
    for each key and the change of every arm where it has the same values as its reference.
    """
    tuned, plan = analysis.tuned, analysis.study.tuning
    if tuned is None or plan is None:
        return []
    first = LEARNING_RATE if LEARNING_RATE in plan.keys else plan.keys[0]
    keys = [*((first, key) for key in plan.keys if key != first), *((key,) for key in plan.keys)]
    is_grid = bool(plan.grid)
    figures = [_scores(analysis, tuned, key, is_grid=is_grid) for key in keys]
    return [figure for figure in (*figures, _changes(analysis, tuned)) if figure is not None]


def _scores(
    analysis: Analysis, tuned: Tuned, keys: tuple[str, ...], *, is_grid: bool
) -> Figure | None:
    """Return the score against the first key; a second key is a colour, in a panel for each arm.

    Args:
        is_grid: whether values are those of a grid, so that lines join them.
    """
    study, is_surface = analysis.study, len(keys) > 1
    rows = [row for arm in study.arms for row in _score_rows(analysis, tuned, arm, keys)]
    scores = [row["value"] for row in rows if "value" in row]
    if not scores:
        return None
    short = figure_name(keys[-1].rpartition(".")[2])
    name = f"tuning-surface-{short}" if is_surface else f"tuning-{short}"
    colour = arm_colour(study)
    if is_surface:
        colour = _by([candidate[keys[1]] for candidate in tuned.candidates], keys[1])
    x = _axis([candidate[keys[0]] for candidate in tuned.candidates], _short(keys[0]))
    base = chart_of(None if is_surface else name).encode(x=x, color=colour)
    placed = base.encode(y=value_axis("value:Q", tuned.metric.title))
    shown = alt.Tooltip("value:Q", format=f".{tuned.metric.shown_digits}f")
    tooltips = [alt.Tooltip("arm:N"), alt.Tooltip("values:N", title="candidate")]
    seed = alt.Tooltip("seed:N", title="tuning seed")
    means = placed.mark_circle(size=64, opacity=1)
    if is_grid:
        means = placed.mark_line(strokeWidth=2.2, point=is_surface)
        means = means if is_surface else means.encode(strokeDash=arm_dash(study))
    layers = [_only(means.encode(tooltip=[*tooltips, shown]), "mean")]
    if is_surface:
        mark = placed.mark_point(shape="diamond", size=240, strokeWidth=2.2, filled=False)
        best = mark.encode(color=alt.value(TEXT), tooltip=[*tooltips, shown])
    else:
        dots = placed.mark_circle(size=26, opacity=0.55).encode(tooltip=[*tooltips, shown, seed])
        layers.insert(0, _only(dots, "seed"))
        mark = placed.mark_point(size=170, strokeWidth=2.4, opacity=1)
        best = mark.encode(shape=_states(rows), tooltip=[*tooltips, shown])
    layers.append(_only(best, "chosen"))
    caption = "Lines are the best mean at each value." if is_grid else "Large dots are means."
    if is_surface:
        caption += " A diamond is the best of an arm."
    else:
        caption += " Dots are tuning seeds. Large marks are the best tried, triangles at an edge."
    if any(row["kind"] == "diverged" for row in rows):
        crosses = base.mark_point(shape=CROSS, size=50, strokeWidth=1.8, opacity=1)
        crosses = crosses.encode(y=alt.value(6), tooltip=[*tooltips, alt.Tooltip("lost:N")])
        layers.append(_only(crosses, "diverged"))
        caption += " A cross at the top is a candidate that diverged on some seed."
    chart = alt.layer(*layers)
    if is_surface:
        chart = panels(chart, list(study.called.values()), name, own="x", field="arm", **SIZE)
    else:
        chart = chart.properties(width=WIDTH, height=HEIGHT)
    return Figure(
        *(name, "tuning", _chosen_text(analysis, tuned, keys), caption, chart, rows),
        log=min(scores) > 0,
        panel=PANEL if is_surface else None,
        wide=is_surface and len(study.arms) > 1,
    )


def _score_rows(analysis: Analysis, tuned: Tuned, arm: str, keys: tuple[str, ...]) -> list[Row]:
    groups: dict[tuple[Value, ...], list[Any]] = {}
    for point in tuned.of(arm):
        values = tuned.values_of(point)
        groups.setdefault(tuple(values[key] for key in keys), []).append(point)
    rows: list[Row] = []
    for at, points in groups.items():
        head = {"arm": analysis.study.called[arm], **dict(zip(("at", "by"), at, strict=False))}

        def add(point: Any, kind: str, value: float = math.nan, head: Row = head, **more: Any):
            if math.isfinite(value):
                more["value"] = rounded(tuned.metric.displayed(value))
            if "value" in more or kind == "diverged":
                rows.append(
                    head | {"kind": kind, "values": values_text(tuned.values_of(point))} | more
                )

        for point in points:
            for seed, value in point.values.items() if len(keys) == 1 else ():
                add(point, "seed", value, seed=seed)
            if point.chosen:
                edges = dict(open_edges(tuned.candidates, tuned.values_of(point)))
                add(point, "chosen", point.mean, state=STATES[edges.get(keys[0], 0)])
        worst = max(points, key=lambda point: point.n_diverged)
        if worst.n_diverged:
            lost = f"{worst.n_diverged} of {len(worst.values)} diverged"
            add(worst, "diverged", lost=lost)
        best = tuned.best_among(points)
        add(best, "mean", best.mean)
    return rows


def _changes(analysis: Analysis, tuned: Tuned) -> Figure | None:
    """Return the change of each arm at every candidate, and the band of its verdict."""
    rows = [
        row for arm, _ in analysis.study.contrasts for row in _change_rows(analysis, tuned, arm)
    ]
    if not rows:
        return None
    name, metric, keys = "tuning-contrast", tuned.metric, list(tuned.candidates[0])
    is_single = len(keys) == 1
    if is_single:
        x = _axis([candidate[keys[0]] for candidate in tuned.candidates], _short(keys[0]))
    else:
        order = [_values(candidate) for candidate in tuned.candidates]
        x = alt.X("at:N", title=", ".join(map(_short, keys)), sort=order)
    change = f"change ({metric.change_unit})" if metric.change_unit else "change"
    y = {"title": change, "scale": alt.Scale(zero=True)}
    base = chart_of(None).encode(color=arm_colour(analysis.study, legend=False))
    value = alt.Tooltip("value:Q", format=f"+.{metric.shown_change_digits}f")
    tooltips = [alt.Tooltip("arm:N"), alt.Tooltip("values:N", title="both at"), value]
    seed = alt.Tooltip("seed:N", title="tuning seed")
    at, verdict = alt.Y("value:Q", **y), [alt.Tooltip("arm:N"), alt.Tooltip("verdict:N")]
    line = base.mark_line(strokeWidth=2.2, point=alt.OverlayMarkDef(size=34))
    means = line if is_single else base.mark_circle(size=80, opacity=1)
    dots = base.mark_circle(size=24, opacity=0.5)
    band = base.mark_rect(opacity=0.22).encode(y=alt.Y("low:Q", **y), y2=alt.Y2("high:Q"))
    chart = alt.layer(
        _only(band.encode(tooltip=verdict), "verdict"),
        zero_line(),
        _only(dots.encode(x=x, y=at, tooltip=[*tooltips, seed]), "seed"),
        _only(means.encode(x=x, y=at, tooltip=tooltips), "mean"),
        _only(base.mark_rule(strokeDash=[5, 3]).encode(y=at, tooltip=verdict), "verdict"),
    )
    labels = list(dict.fromkeys(row["part"] for row in rows))
    shared = _short(keys[0]) if is_single else "candidate"
    caption = (
        f"Change of {metric.label} where both arms have the same {shared}. Dots are tuning seeds, "
        "joined marks their means, which are not tested. The band is the change that is judged, "
        f"each arm at its best, with its {numbers.level(analysis.study.inference.alpha)} interval."
    )
    title, means = f"Change at equal {shared}", [row for row in rows if row["kind"] == "mean"]
    if means:
        low, high = (end(means, key=lambda row: row["value"]) for end in (min, max))
        ends = [
            f"{numbers.signed(row['value'], metric.shown_change_digits)} "
            f"({row['arm']} at {row['values']})"
            for row in ((low, high) if low["value"] < high["value"] else (low,))
        ]
        title += f": {' to '.join(ends)}"
    drawn = panels(chart, labels, name, own="y", **SIZE)  # type: ignore[arg-type]
    wide = len(labels) > FEW_PANELS
    return Figure(name, "tuning", title, caption, drawn, rows, panel=PANEL, wide=wide)


def _change_rows(analysis: Analysis, tuned: Tuned, arm: str) -> list[Row]:
    called, shown = analysis.study.called, tuned.metric.displayed
    reference = analysis.study.reference(arm) or ""
    versus = "" if reference == analysis.study.baseline else f" against {called[reference]}"
    head = {"arm": called[arm], "part": f"{called[arm]}{versus}"}
    rows: list[Row] = []
    for shared in tuned.shared:
        if shared.arm != arm:
            continue
        candidate = tuned.values_of(shared)
        at = next(iter(candidate.values())) if len(candidate) == 1 else _values(candidate)
        row = head | {"at": at, "values": values_text(candidate)}
        rows += [
            row | {"kind": "seed", "seed": seed, "value": rounded(shown(value))}
            for seed, value in shared.differences.items()
        ]
        if math.isfinite(shared.mean):
            rows.append(row | {"kind": "mean", "value": rounded(shown(shared.mean))})
    says = analysis.contrast(arm, tuned.metric.name).decided
    if rows and says is not None:
        ends = (says.interval.low, says.interval.high)
        low, high = ends if all(map(math.isfinite, ends)) else (says.mean, says.mean)
        drawn = {"value": says.mean, "low": low, "high": high}
        drawn = {key: rounded(shown(value)) for key, value in drawn.items()}
        text = tuned.metric.delta_text(says.mean, *ends)
        rows.append(head | {"kind": "verdict", "verdict": text} | drawn)
    return rows


def _chosen_text(analysis: Analysis, tuned: Tuned, keys: tuple[str, ...]) -> str:
    """Return `Best learning rate tried: 0.003 in every arm`, or of each arm."""
    best: dict[str, list[str]] = {}
    for arm in analysis.study.arms:
        values = tuned.values_of(tuned.best(arm))
        text = _values({key: values[key] for key in keys})
        best.setdefault(text, []).append(analysis.study.called[arm])
    title = f"Best {' and '.join(map(_short, keys))} tried"
    if len(best) == 1:
        return f"{title}: {next(iter(best))} in every arm"
    each = (
        f"{value} ({join(arms) if len(arms) <= MOST_NAMED else f'{len(arms)} arms'})"
        for value, arms in best.items()
    )
    return f"{title}: {', '.join(each)}"


def _axis(values: Sequence[Value], title: str) -> alt.X:
    """Return a logarithmic axis where positive numbers span much; words as they are."""
    tried = list(dict.fromkeys(values))
    numeric = [value for value in tried if not isinstance(value, (bool, str))]
    if len(numeric) < len(tried):
        return alt.X("at:N", title=title, sort=[str(value) for value in tried])
    kind = "log" if min(numeric) > 0 and max(numeric) >= LOG_FROM * min(numeric) else "linear"
    small = kind == "log" and min(numeric) < SMALL
    look = {"labelOverlap": "greedy", "tickCount": 6, "labelSeparation": 4}
    axis = alt.Axis(format="~e" if small else "~g", **look)
    if len(numeric) <= MOST_TICKS:
        axis.values = sorted(numeric)
    zero = alt.Undefined if kind == "log" else False  # a logarithmic scale has no zero
    scale = alt.Scale(type=kind, zero=zero, nice=False, padding=14)
    return alt.X("at:Q", title=title, scale=scale, axis=axis)


def _by(values: Sequence[Value], key: str) -> alt.Color:
    """Return the colour of a tuned value, distinct on white and on black."""
    tried = list(dict.fromkeys(values))
    if not any(isinstance(value, (bool, str)) for value in tried):
        tried.sort()
    scale = alt.Scale(domain=tried, scheme=alt.SchemeParams(name="plasma", extent=[0.3, 0.9]))
    legend = alt.Legend(symbolType="circle", symbolSize=80)
    return alt.Color("by:O", title=_short(key), scale=scale, legend=legend)


def _states(rows: list[Row]) -> alt.Shape:
    """Return the shape of a choice, by the edge at which it stands."""
    scale = alt.Scale(domain=list(SHAPES), range=list(SHAPES.values()))
    states = {row.get("state") for row in rows}
    legend = alt.Legend(values=[state for state in SHAPES if state in states], labelLimit=0)
    return alt.Shape("state:N", title=None, scale=scale, legend=legend)


def _only(chart: alt.Chart, kind: str) -> alt.Chart:
    """Return the chart of the rows of one kind."""
    return chart.transform_filter(f"datum.kind == '{kind}'")


def _short(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


def _values(candidate: Candidate) -> str:
    """Return `3e-4, 0.1`: the values of a candidate in their order."""
    return ", ".join(values_text({"": value}).strip() for value in candidate.values())
