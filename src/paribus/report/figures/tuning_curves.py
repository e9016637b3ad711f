"""Tuning: what was chosen, and what a contrast depends on; every tuning trial is a dot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from paribus import numbers
from paribus.analysis import Analysis, Point, Tuned, choose
from paribus.report.cells import join
from paribus.report.figures.figure_rows import finding, last_means
from paribus.report.figures.style import (
    HEIGHT,
    LOG_FROM,
    SMALL,
    TEXT,
    WIDTH,
    Figure,
    arm_colour,
    arm_dash,
    figure_name,
    hover,
    over,
    panels,
    rounded,
)
from paribus.statistics import Decided
from paribus.study import LEARNING_RATE, Candidate, Tuning, in_words, open_edges
from paribus.study.tuning import Value

PANEL, PANEL_HEIGHT = 250, 220
FEW_PANELS = 4  # stand in half of a page
MOST_TICKS = 12  # values that are all named on the axis
CROSS = "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7"
# What was chosen, by where it stands among the values tried: inside, or at which edge.
STATES = {
    0: "chosen",
    -1: "chosen: lower edge",
    1: "chosen: upper edge",
}
SHAPES = dict(zip(STATES.values(), ("diamond", "triangle-left", "triangle-right"), strict=True))
SHARED = "tuning-contrast"


def curve_name(key: str) -> str:
    """Return the name of the figure of a tuned key."""
    return f"tuning-{figure_name(key.rpartition('.')[2])}"


def surface_name(key: str) -> str:
    """Return the name of the figure of a key beside the first."""
    return f"tuning-surface-{figure_name(key.rpartition('.')[2])}"


def tuning_figures(analysis: Analysis) -> list[Figure]:
    """Return the surface over the first key and each other one, a curve for each tuned key, and the
    contrast at every shared value."""
    tuned, plan = analysis.tuned, analysis.study.tuning
    if tuned is None or plan is None:
        return []
    first = LEARNING_RATE if LEARNING_RATE in plan.keys else plan.keys[0]
    others = [key for key in plan.keys if key != first]
    surfaces = [_surface(analysis, tuned, plan, first, other) for other in others]
    curves = [_curve(analysis, tuned, plan, key) for key in plan.keys]
    found = [*surfaces, *curves, _shared(analysis, tuned)]
    return [figure for figure in found if figure is not None]


def _surface(analysis: Analysis, tuned: Tuned, plan: Tuning, key: str, other: str) -> Figure | None:
    """Return the metric that chooses against one key, coloured by another: a panel for each arm,
    and a line for each value where a grid lists them."""
    rows = [
        row
        for arm in analysis.study.arms
        for row in _surface_rows(analysis, tuned, arm, (key, other))
    ]
    drawn = [row["value"] for row in rows if "value" in row]
    if not drawn:
        return None
    name, (across, beside) = surface_name(other), map(_short, (key, other))
    listed, lost = bool(plan.grid), any(r["kind"] == "diverged" for r in rows)
    colour = _by([one[other] for one in tuned.candidates], beside)
    shown = alt.Tooltip("value:Q", format=f".{tuned.metric.shown_digits}f")
    told = hover("arm:N", alt.Tooltip("values:N", title="candidate"), shown)
    base = alt.Chart().encode(  # the facet has the data
        x=_axis([one[key] for one in tuned.candidates], across),
        tooltip=told,
    )
    y = over("value:Q", tuned.metric.title)
    layers = [
        *(
            [_only(base.mark_line(strokeWidth=2).encode(y=y, color=colour), "mean")]
            if listed
            else []
        ),
        _only(base.mark_circle(size=64, opacity=1).encode(y=y, color=colour), "mean"),
        _only(
            base.mark_point(
                shape="diamond", size=240, strokeWidth=2.2, opacity=1, color=TEXT, filled=False
            ).encode(y=y),
            "chosen",
        ),
    ]
    if lost:
        crosses = base.mark_point(shape=CROSS, size=50, strokeWidth=1.8, opacity=1)
        told_lost = hover("arm:N", alt.Tooltip("values:N", title="candidate"), "lost:N")
        crosses = crosses.encode(y=alt.value(6), color=colour, tooltip=told_lost)
        layers.append(_only(crosses, "diverged"))
    called = list(analysis.study.called.values())
    facet = alt.Facet("arm:N", title=None, sort=called)
    chart = panels(
        *(alt.layer(*layers), facet, name),
        own="x",
        labels=called,
        columns=2,
        width=PANEL,
        height=PANEL_HEIGHT,
    )
    more = len(tuned.candidates[0]) > 2
    whatever = ", the other keys at their best" if listed and more else ""
    how = f"a line for each {beside}" if listed else f"coloured by {beside}"
    caption = (
        f"Mean {tuned.metric.label} over the tuning seeds against the {across}, {how}{whatever}; "
        "every arm has the same candidates, and a diamond marks its best."
        + (" A cross at the top is a candidate that diverged on some seed." if lost else "")
    )
    return Figure(
        name,
        "tuning",
        _chosen_in_words(analysis, tuned, (key, other)),
        caption,
        chart,
        rows,
        log=min(drawn) > 0,
        panel=PANEL,
        wide=len(called) > 1,
    )


def _surface_rows(
    analysis: Analysis, tuned: Tuned, arm: str, keys: tuple[str, str]
) -> list[dict[str, Any]]:
    called, rows = analysis.study.called[arm], []
    there: dict[tuple[Value, ...], list[Point]] = {}
    for point in tuned.of(arm):
        there.setdefault(tuple(tuned.values_of(point)[key] for key in keys), []).append(point)
    for (at, by), points in there.items():
        number = choose({one.candidate: one.values for one in points}, tuned.metric.better)
        best = next(one for one in points if one.candidate == number)
        row = {"arm": called, "at": at, "by": by, "values": in_words(tuned.values_of(best))}
        if math.isfinite(best.mean):
            kinds = ["mean", "chosen"] if best.chosen else ["mean"]
            mean = rounded(tuned.metric.shown(best.mean))
            rows += [row | {"kind": kind, "value": mean} for kind in kinds]
        if best.n_diverged:
            lost = f"{best.n_diverged} of {len(best.values)} diverged"
            rows.append(row | {"kind": "diverged", "lost": lost})
    return rows


def _by(values: Sequence[Value], title: str) -> alt.Color:
    """Return the colour of a tuned value: shades that are told apart on white and on black."""
    shades = alt.SchemeParams(name="plasma", extent=[0.3, 0.9])
    tried = list(dict.fromkeys(values))
    if not any(isinstance(value, (bool, str)) for value in tried):
        tried.sort()
    legend = alt.Legend(symbolType="circle", symbolSize=80)
    scale = alt.Scale(domain=tried, scheme=shades)
    return alt.Color("by:O", title=title, scale=scale, legend=legend)


def _short(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


def _curve(analysis: Analysis, tuned: Tuned, plan: Tuning, key: str) -> Figure | None:
    """Return the metric that chooses against one key: seeds, best means, the choice."""
    study = analysis.study
    rows = [row for arm in study.arms for row in _curve_rows(analysis, tuned, arm, key)]
    drawn = [row["value"] for row in rows if "value" in row]
    if not drawn:
        return None
    lost = any(row["kind"] == "diverged" for row in rows)
    name, short, listed = curve_name(key), _short(key), bool(plan.grid)
    values = [candidate[key] for candidate in tuned.candidates]
    y = over("value:Q", tuned.metric.title)
    base = alt.Chart(alt.NamedData(name)).encode(x=_axis(values, short))
    # One legend for all layers: one that a layer drops is lost for the others.
    colour, candidate = arm_colour(study), alt.Tooltip("values:N", title="candidate")
    shown = alt.Tooltip("value:Q", format=f".{tuned.metric.shown_digits}f")
    seeds = base.mark_circle(size=26, opacity=0.55).encode(
        y=y,
        color=colour,
        tooltip=hover("arm:N", candidate, alt.Tooltip("seed:N", title="tuning seed"), shown),
    )
    # Listed combinations differ in the other keys too: no line joins them.
    means = base.mark_circle(size=70, opacity=1).encode(y=y, color=colour)
    if listed:
        line = base.mark_line(strokeWidth=2.2)
        means = line.encode(y=y, color=colour, strokeDash=arm_dash(study))
    chosen = base.mark_point(size=170, strokeWidth=2.4, opacity=1).encode(
        y=y, color=colour, shape=_states(rows), tooltip=hover("arm:N", candidate, "state:N", shown)
    )
    crosses = base.mark_point(shape=CROSS, size=50, strokeWidth=1.8, opacity=1).encode(
        color=colour, tooltip=hover("arm:N", candidate, "lost:N")
    )
    chart = alt.layer(
        _only(seeds, "seed"),
        _only(means, "mean"),
        _only(chosen, "chosen"),
        *([_only(crosses.encode(y=alt.value(6)), "diverged")] if lost else []),
    ).properties(width=WIDTH, height=HEIGHT)
    several = len(tuned.candidates[0]) > 1
    best = "lines the best mean at each value, whatever the other keys"
    best = (
        best if listed and several else "lines their means" if listed else "large dots their means"
    )
    caption = (
        f"{_capital(tuned.metric.label)} of every tuning trial against the {short}: dots are "
        f"tuning seeds, {best}, and the large marks the best tried"
        + ("; a triangle points beyond the edge." if _has_edge(rows) else ".")
        + (" A cross at the top is a candidate that diverged on some seed." if lost else "")
    )
    title = _chosen_in_words(analysis, tuned, (key,))
    _, means = finding("", last_means([row for row in rows if row["kind"] == "chosen"]))
    caption += f" Best means: {means}" if means else ""
    return Figure(name, "tuning", title, caption, chart, rows, log=min(drawn) > 0)


def _chosen_in_words(analysis: Analysis, tuned: Tuned, keys: tuple[str, ...]) -> str:
    """Return `Best learning rate: 0.003 in every arm`, or of each arm."""
    called = analysis.study.called
    best: dict[str, list[str]] = {}
    for arm in analysis.study.arms:
        values = tuned.values_of(tuned.best(arm))
        best.setdefault(_values({key: values[key] for key in keys}), []).append(called[arm])
    what = f"Best {' and '.join(map(_short, keys))} tried"
    if len(best) == 1:
        return f"{what}: {next(iter(best))} in every arm"
    return f"{what}: {', '.join(f'{value} ({join(arms)})' for value, arms in best.items())}"


def _only(chart: alt.Chart, kind: str) -> alt.Chart:
    """Return the chart of the rows of one kind."""
    return chart.transform_filter(f"datum.kind == '{kind}'")


def _curve_rows(analysis: Analysis, tuned: Tuned, arm: str, key: str) -> list[dict[str, Any]]:
    called = analysis.study.called[arm]

    def row(point: Point, kind: str, **more: Any) -> dict[str, Any]:
        candidate = tuned.values_of(point)
        words = in_words(candidate)
        return {"arm": called, "at": candidate[key], "kind": kind, "values": words, **more}

    rows = []
    by_value: dict[Value, list[Point]] = {}
    for point in tuned.of(arm):
        by_value.setdefault(tuned.values_of(point)[key], []).append(point)
        rows += [
            row(point, "seed", seed=seed, value=rounded(tuned.metric.shown(value)))
            for seed, value in point.values.items()
            if math.isfinite(value)
        ]
        if lost := point.n_diverged:
            rows.append(row(point, "diverged", lost=f"{lost} of {len(point.values)} diverged"))
        if point.chosen and math.isfinite(point.mean):
            edges = dict(open_edges(tuned.candidates, tuned.values_of(point)))
            state = STATES[edges.get(key, 0)]
            mean = rounded(tuned.metric.shown(point.mean))
            rows.append(row(point, "chosen", value=mean, state=state))
    for there in by_value.values():
        number = choose({one.candidate: one.values for one in there}, tuned.metric.better)
        best = next(one for one in there if one.candidate == number)
        if math.isfinite(best.mean):
            rows.append(row(best, "mean", value=rounded(tuned.metric.shown(best.mean))))
    return rows


def _axis(values: Sequence[Value], title: str) -> alt.X:
    """Return a logarithmic axis where positive numbers span much; words as they are."""
    tried = list(dict.fromkeys(values))
    numeric = [value for value in tried if not isinstance(value, (bool, str))]
    if len(numeric) < len(tried):
        return alt.X("at:N", title=title, sort=[str(value) for value in tried])
    kind = "log" if min(numeric) > 0 and max(numeric) >= LOG_FROM * min(numeric) else "linear"
    small = kind == "log" and min(numeric) < SMALL
    axis = alt.Axis(
        format="~e" if small else "~g", labelOverlap="greedy", tickCount=6, labelSeparation=4
    )
    if len(numeric) <= MOST_TICKS:
        axis.values = sorted(numeric)
    zero = alt.Undefined if kind == "log" else False  # which has none
    return alt.X(
        "at:Q",
        title=title,
        scale=alt.Scale(type=kind, zero=zero, nice=False, padding=14),
        axis=axis,
    )


def _states(rows: list[dict[str, Any]]) -> alt.Shape:
    """Return the shape of a choice, by the edge at which it stands."""
    there = {row.get("state") for row in rows}
    return alt.Shape(
        "state:N",
        title=None,
        scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())),
        legend=alt.Legend(values=[state for state in SHAPES if state in there]),
    )


def _has_edge(rows: list[dict[str, Any]]) -> bool:
    return any(row.get("state") in (STATES[-1], STATES[1]) for row in rows)


def _shared(analysis: Analysis, tuned: Tuned) -> Figure | None:
    """Return each contrast at every candidate, and the band of its verdict at the best."""
    arms = [arm for arm, _ in analysis.study.contrasts]
    rows = [row for arm in arms for row in _shared_rows(analysis, tuned, arm)]
    if not rows:
        return None
    metric, short = tuned.metric, _common(tuned)
    order = list(dict.fromkeys(row["contrast"] for row in rows))
    facet = alt.Facet("contrast:N", title=None, sort=order)
    chart = panels(
        *(_shared_panel(analysis, tuned), facet, SHARED),
        own="y",
        labels=order,
        columns=2,
        width=PANEL,
        height=PANEL_HEIGHT,
    )
    level = numbers.level(analysis.study.inference.alpha)
    mark = "the line is" if len(tuned.candidates[0]) == 1 else "the large dot is"
    caption = (
        f"Change of {metric.label} where both arms have the same {short}: dots are tuning seeds, "
        f"{mark} their mean, which describes and tests nothing."
    )
    if any(row["kind"] == "verdict" for row in rows):
        caption += (
            f" The band is the verdict's contrast, each arm at its best: its mean and {level} "
            "interval."
        )
    means = [row for row in rows if row["kind"] == "mean"]
    title = "The contrast at every shared value"
    if means:
        low, high = (of(means, key=lambda row: row["value"]) for of in (min, max))
        told = (
            f"{numbers.signed(row['value'], metric.shown_change_digits)} "
            f"({row['arm']} at {row['values'].replace('_', ' ')})"
            for row in (low, high)
        )
        between = " to ".join(told) if low["value"] < high["value"] else next(told)
        title = f"At shared values, {metric.label} changes by {between}"
        caption += f" The means lie from {between}."
    return Figure(
        SHARED,
        "tuning",
        title,
        caption,
        chart,
        rows,
        panel=PANEL,
        wide=len(order) > FEW_PANELS,
    )


def _values(candidate: Candidate) -> str:
    """Return `3e-4, 0.1`: its values in their order."""
    return ", ".join(in_words({"": value}).strip() for value in candidate.values())


def _common(tuned: Tuned) -> str:
    """Return what arms share: `learning rate`, or `candidate` of several keys."""
    keys = list(tuned.candidates[0])
    return _short(keys[0]) if len(keys) == 1 else "candidate"


def _shared_panel(analysis: Analysis, tuned: Tuned) -> Any:
    """Return a panel: seeds and their mean against what is shared, the band of the verdict."""
    metric, keys = tuned.metric, list(tuned.candidates[0])
    if len(keys) == 1:
        x = _axis([candidate[keys[0]] for candidate in tuned.candidates], _common(tuned))
    else:
        title = ", ".join(map(_short, keys))
        order = [_values(candidate) for candidate in tuned.candidates]
        x = alt.X("at:N", title=title, sort=order)
    unit = f" ({metric.change_unit})" if metric.change_unit else ""
    y = {"title": f"change{unit}", "scale": alt.Scale(zero=True)}
    colour = arm_colour(analysis.study, legend=False)
    chart = alt.Chart()  # the facet has the data
    value = alt.Tooltip("value:Q", format=f"+.{metric.shown_change_digits}f")
    candidate = alt.Tooltip("values:N", title="both at")
    seeds = chart.mark_circle(size=24, opacity=0.5).encode(
        x=x,
        y=alt.Y("value:Q", **y),
        color=colour,
        tooltip=hover("arm:N", candidate, alt.Tooltip("seed:N", title="tuning seed"), value),
    )
    # Candidates for several keys have no order.
    line = chart.mark_line(strokeWidth=2.2, point=alt.OverlayMarkDef(size=34))
    means = (line if len(keys) == 1 else chart.mark_circle(size=80, opacity=1)).encode(
        x=x, y=alt.Y("value:Q", **y), color=colour, tooltip=hover("arm:N", candidate, value)
    )
    band = chart.mark_rect(opacity=0.22).encode(
        y=alt.Y("low:Q", **y),
        y2=alt.Y2("high:Q"),
        color=colour,
        tooltip=hover("arm:N", "verdict:N"),
    )
    line = chart.mark_rule(strokeWidth=1.6, strokeDash=[5, 3]).encode(
        y=alt.Y("value:Q", **y), color=colour, tooltip=hover("arm:N", "verdict:N")
    )
    zero = chart.mark_rule(color=TEXT, opacity=0.5, tooltip=None).encode(y=alt.datum(0))
    return alt.layer(
        _only(band, "verdict"),
        zero,
        _only(seeds, "seed"),
        _only(means, "mean"),
        _only(line, "verdict"),
    )


def _shared_rows(analysis: Analysis, tuned: Tuned, arm: str) -> list[dict[str, Any]]:
    called = analysis.study.called
    rows: list[dict[str, Any]] = []
    single = len(tuned.candidates[0]) == 1
    reference = analysis.study.reference(arm)
    assert reference is not None
    versus = "" if reference == analysis.study.baseline else f" against {called[reference]}"
    head = {"arm": called[arm], "contrast": f"{called[arm]}{versus}"}
    for shared in (one for one in tuned.shared if one.arm == arm):
        candidate = tuned.values_of(shared)
        words = in_words(candidate)
        at = next(iter(candidate.values())) if single else _values(candidate)
        row = head | {"at": at, "values": words}
        rows += [
            row | {"kind": "seed", "seed": seed, "value": rounded(tuned.metric.shown(value))}
            for seed, value in shared.differences.items()
        ]
        if math.isfinite(shared.mean):
            mean = rounded(tuned.metric.shown(shared.mean))
            rows.append(row | {"kind": "mean", "value": mean})
    says = _verdict_contrast(analysis, arm)
    if rows and says is not None:
        low, high = says.interval.low, says.interval.high
        ends = {"low": says.mean, "high": says.mean}
        if math.isfinite(low) and math.isfinite(high):
            ends = {"low": low, "high": high}
        shown = tuned.metric.shown
        rows.append(
            head
            | {"kind": "verdict", "value": rounded(shown(says.mean))}
            | {key: rounded(shown(value)) for key, value in ends.items()}
            | {"verdict": tuned.metric.delta_text(says.mean, low, high)}
        )
    return rows


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _verdict_contrast(analysis: Analysis, arm: str) -> Decided | None:
    """Return the verdict's contrast of `arm` on the metric that tuning selects by."""
    assert analysis.tuned is not None
    metric = analysis.tuned.metric.name
    return next((c.decided for c in analysis.contrasts if (c.arm, c.metric) == (arm, metric)), None)
