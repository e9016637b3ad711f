"""The abstract of a paper of several studies: what was done, and the answers by what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paribus import numbers
from paribus.report.paper.designs import spanned
from paribus.report.paper.document import Paragraph, say
from paribus.report.paper.finding_by_setting import AXES, Trend, in_short, trends
from paribus.report.paper.judged import (
    IN_WORDS,
    RESOLVED,
    Judged,
    Stability,
    State,
    arms_in_words,
    judged,
    judged_on,
)
from paribus.report.paper.material import Material
from paribus.report.vocabulary import listed

TOLD: tuple[State, ...] = (*RESOLVED, "open")  # what is described only has no place here
MOST_TRENDS = 2
MOST_WORDS, MOST_TITLES = 200, 3
STABILITY: dict[Stability, str] = {
    "cured": "Instability is cured",
    "destabilised": "Training is destabilised",
    "not cured": "Instability is not shown to be cured",
}


def abstract_of_several(studies: Sequence[Material], titles: Mapping[str, str]) -> Paragraph:
    """The numbers of the first endpoint that each study judges; of the others the findings.

    Studies are named by their titles as long as there is room for that.
    """
    text = ""
    for most in (len(studies), MOST_TITLES):
        told = [_done(studies)]
        metrics = dict.fromkeys(e.metric for one in studies for e in one.study.judged)
        for i, metric in enumerate(metrics):
            brief = _in_short(studies, metric)
            told.append(brief if i else _answers(studies, metric, titles, most))
        told += [_along(studies), *_stability(studies, titles), _calibrated(studies)]
        text = " ".join(filter(None, told))
        if len(text.split()) <= MOST_WORDS:
            break
    return say(text)


def _done(studies: Sequence[Material]) -> str:
    parameters = spanned(n for one in studies for n in one.parameters)
    size = f" of {parameters} parameters" if parameters else ""
    n = sum(one.analysis.n_trials for one in studies)
    rules = ", by rules that were registered before the first run"
    unregistered = [one.name for one in studies if one.analysis.unregistered]
    more = f" The registration of {listed(unregistered)} does not hold." if unregistered else ""
    return (
        f"We report {len(studies)} studies ({n:,} trials) of decoder-only Transformers{size}. Arms "
        "differ from a shared setting in a stated way alone and are compared seed by seed"
        f"{'' if unregistered else rules}.{more}"
    )


def _found(studies: Sequence[Material], metric: str) -> dict[State, list[tuple[Material, str]]]:
    """By state the studies that have it, each with the arms that do where others do not."""
    found: dict[State, list[tuple[Material, str]]] = {state: [] for state in TOLD}
    for material in studies:
        mine = judged_on(judged(material), metric)
        for state in TOLD:
            group = [one for one in mine if one.state == state]
            if group:
                arms = "" if len(group) == len(mine) else f" ({arms_in_words(group, len(mine))})"
                found[state].append((material, arms))
    return {state: of for state, of in found.items() if of}


def _answers(studies: Sequence[Material], metric: str, titles: Mapping[str, str], most: int) -> str:
    """In which studies the endpoint is worse, better, within the margin or open; where they are
    more than `most`, in how many."""
    found, parts = _found(studies, metric), []
    n = len({material.name for of in found.values() for material, _ in of})
    for state, of in found.items():
        group = [
            one
            for material, _ in of
            for one in judged_on(judged(material), metric)
            if one.state == state
        ]
        named = listed([f"“{titles[material.name]}”{arms}" for material, arms in of])
        where = named if len(of) <= most else f"{len(of)} of {n} studies"
        parts.append(f"{IN_WORDS[state]} in {where}{_range(group) if state in RESOLVED else ''}")
    label = _label(studies, metric)
    return f"{label[:1].upper()}{label[1:]} is {'; '.join(parts)}." if parts else ""


def _in_short(studies: Sequence[Material], metric: str) -> str:
    """Of a further endpoint the number of studies alone."""
    found = _found(studies, metric)
    n = len({material.name for of in found.values() for material, _ in of})
    parts = [f"{IN_WORDS[state]} in {len(of)}" for state, of in found.items()]
    if not n:
        return ""
    return f"Of {n} studies that test it, {_label(studies, metric)} is {listed(parts)}."


def _range(group: Sequence[Judged]) -> str:
    """` (+0.09 to +0.27 nats/token)`: of the changes."""
    known = [one.contrast.decided.mean for one in group if one.contrast.decided is not None]
    if not known:
        return ""
    metric = group[0].contrast.declared
    ends = dict.fromkeys(numbers.signed(f(known), metric.change_digits) for f in (min, max))
    unit = f" {metric.change_unit}" if metric.change_unit else ""
    return f" ({' to '.join(ends)}{unit})"


def _label(studies: Sequence[Material], metric: str) -> str:
    labels = dict.fromkeys(
        one.contrast.declared.label
        for material in studies
        for one in judged_on(judged(material), metric)
    )
    return " or ".join(labels)


def _along(studies: Sequence[Material]) -> str:
    """Of each axis the trend with the most points: those first that change the finding."""
    longest: list[Trend] = []
    found = trends(studies)
    for axis in AXES:
        mine = [trend for trend in found if trend.axis is axis]
        longest += [max(mine, key=lambda trend: len(trend.points))] if mine else []
    longest.sort(key=lambda trend: (not trend.changes, -len(trend.points)))
    told = []
    for trend in longest[:MOST_TRENDS]:
        tuned = " and each arm has its best learning rate" if trend.tuned else ""
        differ = "differ" if " and " in trend.axis.title else "differs"
        told.append(
            f"Where only the {trend.axis.title} {differ}{tuned}, {trend.called} is "
            f"{in_short(trend)}."
        )
    return " ".join(told)


def _stability(studies: Sequence[Material], titles: Mapping[str, str]) -> list[str]:
    told = []
    for state, said in STABILITY.items():
        of = [one for one in studies if any(j.stability == state for j in judged(one))]
        if of:
            told.append(f"{said} in {listed([f'“{titles[one.name]}”' for one in of])}.")
    return told


def _calibrated(studies: Sequence[Material]) -> str:
    """What the baseline against itself gave."""
    told = [one.errors.first for one in studies if one.errors is not None]
    return " ".join(f"{line}." for line in told)
