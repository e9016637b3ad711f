"""The abstract of a paper of several studies: what was done, and the answers by what came out."""

from __future__ import annotations

from collections.abc import Sequence

from paribus import numbers
from paribus.report.paper.designs import spanned
from paribus.report.paper.document import Paragraph, say
from paribus.report.paper.finding_by_setting import (
    AXES,
    BEST_OF_TRIED,
    Axis,
    Trend,
    differing,
    differing_too,
    in_short,
    trends,
    where,
)
from paribus.report.paper.judged import (
    IN_WORDS,
    RESOLVED,
    TOLD,
    Judged,
    Stability,
    judged,
    judged_on,
)
from paribus.report.paper.material import Material
from paribus.report.paper.mechanism import mechanism_in_short
from paribus.report.paper.untold_rates import untold
from paribus.report.words import listed

MOST_TRENDS = 2
MOST_NAMED = 2  # arms beside a count
MOST_WORDS = 355  # the authors' own with them
STABILITY: dict[Stability, str] = {
    "cured": "instability is cured",
    "rarer": "instability is rarer, and there still,",
    "destabilised": "training is destabilised",
    "not cured": "instability is not shown to be cured",
}


def abstract_of_several(studies: Sequence[Material], own_words: int = 0) -> Paragraph:
    """The numbers of the first endpoint that the studies judge, what it is due to, and along what
    it changes; of other endpoints the counts.

    `own_words` are the authors', before it. What there is no room for is left out, the least
    important first; what stands is in the order of an argument.
    """
    metrics = list(dict.fromkeys(e.metric for one in studies for e in one.study.judged))
    first, *others = [_answers(studies, metric) for metric in metrics]
    parts = mechanism_in_short(studies)
    along, calibrated = _along(studies), _calibrated(studies)
    told = [_done(studies), first, *along, parts, *_stability(studies), *others, calibrated]
    ranked = [*told[:2], *along, parts, *others, *_stability(studies), calibrated]
    room, kept = MOST_WORDS - own_words, set[str]()
    for line in ranked:
        if line and (len(line.split()) <= room or not kept):
            kept.add(line)
            room -= len(line.split())
    return say(" ".join(line for line in told if line in kept))


def _done(studies: Sequence[Material]) -> str:
    parameters = spanned(n for one in studies for n in one.parameters)
    size = f" of {parameters} parameters" if parameters else ""
    n = sum(one.analysis.n_trials for one in studies)
    rules = ", by rules that each study registered before its own first trial"
    unregistered = [one.name for one in studies if one.analysis.unregistered]
    more = f" The registration of {listed(unregistered)} does not hold." if unregistered else ""
    again = sum(one.analysis.n_trials for one in studies if one.errors is not None)
    trials = f"{n:,} trials" + (f", {again:,} of the baseline against itself" if again else "")
    return (
        f"We report {len(studies)} studies ({trials}) of decoder-only Transformers{size}. Arms "
        "differ in a stated way, and in the values that tuning chose, and are compared seed by seed"
        f"{'' if unregistered else rules}.{more}"
    )


def _answers(studies: Sequence[Material], metric: str) -> str:
    """Of all comparisons on an endpoint how many are worse, better, within the margin, or open:
    each is one of these, so that the counts add up."""
    on = [one for material in studies for one in judged_on(judged(material), metric)]
    groups = {state: [one for one in on if one.state == state] for state in TOLD}
    n = sum(map(len, groups.values()))
    if not n:
        return ""
    label = " or ".join(
        dict.fromkeys(one.contrast.declared.label for group in groups.values() for one in group)
    )
    parts = [
        f"{len(group)} {'is' if len(group) == 1 else 'are'} {IN_WORDS[state]}"
        f"{_range(group) if state in RESOLVED else _without_pairs(group)}"
        for state, group in groups.items()
        if group
    ]
    return f"Of {numbers.plural(n, 'comparison')} on {label}, {listed(parts)}."


def _without_pairs(group: Sequence[Judged]) -> str:
    """` (4 without a pair to compare)`: of those that are open."""
    n = sum(one.contrast.decided is None for one in group)
    return f" ({n} without a pair to compare)" if n else ""


def _range(group: Sequence[Judged]) -> str:
    """` (+0.09 to +0.27 nats/token)`: of the changes."""
    known = [one.contrast.decided.mean for one in group if one.contrast.decided is not None]
    if not known:
        return ""
    metric = group[0].contrast.declared
    ends = dict.fromkeys(numbers.signed(f(known), metric.change_digits) for f in (min, max))
    unit = f" {metric.change_unit}" if metric.change_unit else ""
    return f" ({' to '.join(ends)}{unit})"


def _along(studies: Sequence[Material]) -> list[str]:
    """Of each axis a sentence on all trends, those first with the most points: those axes first
    that change a finding."""
    found = trends(studies)
    by_axis = [[trend for trend in found if trend.axis is axis] for axis in AXES]
    for mine in by_axis:
        mine.sort(key=lambda trend: -len(trend.points))
    known = [mine for mine in by_axis if mine]
    known.sort(key=lambda mine: (not any(t.changes for t in mine), -len(mine[0].points)))
    return [_on_an_axis(mine[0].axis, mine) for mine in known[:MOST_TRENDS]]


def _on_an_axis(axis: Axis, found: Sequence[Trend]) -> str:
    """`Where only ... differ, LayerNorm is ...; RMSNorm is ...`."""
    but = differing(axis, [point for trend in found for point in trend.points])
    differ = "differ" if len(but) > 1 or " and " in axis.title else "differs"
    tuned = f", {BEST_OF_TRIED}" if all(trend.tuned for trend in found) else ""
    too = differing_too([point for trend in found for point in trend.points])
    told = f" ({listed(too)} differ too)" if too else ""
    text = f"Between studies in whose settings only {listed(but)} {differ}{told}{tuned}: "
    return f"{text}{in_short(found)}.{_untold(found)}"


def _untold(found: Sequence[Trend]) -> str:
    """That part of a change may be one of learning rates."""
    told = []
    for trend in found:
        points = [
            point
            for point in trend.points
            if any(one.arm == point.one.contrast.arm for one in untold(point.material))
        ]
        if points:
            told.append(f"{trend.called} {where(points, trend)}")
    if not told:
        return ""
    return f" Tuning did not tell the rates of baseline and arm apart with {listed(told)}."


def _stability(studies: Sequence[Material]) -> list[str]:
    told = []
    for state, said in STABILITY.items():
        found = [one for material in studies for one in judged(material) if one.stability == state]
        if found:
            arms = {(one.study, one.verdict.arm) for one in found}
            where = "Where the baseline is unstable, " if state != "destabilised" else ""
            n = numbers.plural(len(arms), "comparison")
            names = list(dict.fromkeys(one.called for one in found))
            named = f" ({'; '.join(names)})" if len(names) <= MOST_NAMED else ""
            line = f"{where}{said} in {n}{named}."
            told.append(f"{line[:1].upper()}{line[1:]}")
    return told


def _calibrated(studies: Sequence[Material]) -> str:
    """What the baseline against itself gave."""
    told = [one.errors.first for one in studies if one.errors is not None]
    return " ".join(f"{line}." for line in told)
