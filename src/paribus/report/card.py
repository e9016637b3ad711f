"""The card: the word on each arm, by how much and how sure, on some ten lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from paribus import numbers
from paribus.analysis import Analysis, Cost
from paribus.decision import Verdict, Word, beside, change_in_words, excluded_in_words, uncommitted
from paribus.metric import Metric
from paribus.report.words import (
    at_the_same_seed,
    divergence_in_words,
    listed,
    margin_in_words,
    missing_in_words,
    names,
)
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Study

KEEPING = ("BASELINE", "IMPROVES", "NO EFFECT", "REJECT")  # outcomes by which the reference stays


@dataclass(frozen=True)
class CardRow:
    """An arm on one endpoint.

    Attributes:
        note: what its cost is, in how many seeds it diverged, and what the claim is about where
            arms of one endpoint differ in that.
        p: of the test that decides; where too few pairs are left to test, how many there are.
    """

    word: Word
    note: str
    arm: str
    change: str
    p: str


@dataclass(frozen=True)
class Compared:
    """What arms are compared with, on one endpoint: its mean over seeds, and what it is."""

    arm: str
    mean: str
    seeds: int
    what: str


@dataclass(frozen=True)
class Chip:
    """A fact beside the answer in a few words, the section that has more, and its style: of how
    good it is, or empty."""

    text: str
    section: str
    style: str = ""


@dataclass(frozen=True)
class Card:
    """What a study found.

    Attributes:
        question: what it asked.
        blocks: by the endpoint and what its claims are about, its arms: the best change first.
        compared: by the same, what they are compared with.
        reading: how to read the numbers, a line.
        caution: the most important thing that the answer depends on; empty for nothing.
        more: how many cautions there are besides.
        cautions: all of them.
        action: what the registered rule says to do; empty where it says nothing.
        facts: trials and controls, counted.
        beside: of runs that are judged, by secondary endpoint the arm, its change and its p.
    """

    question: str
    blocks: dict[str, list[CardRow]]
    compared: dict[str, list[Compared]]
    reading: str
    caution: str
    more: int
    action: str
    facts: tuple[str, ...]
    cautions: tuple[str, ...] = ()
    beside: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)


def card(analysis: Analysis, verdicts: list[Verdict], *, titles: bool = False) -> Card:
    """Return the card of a study; `titles` calls arms by their titles, not by their names."""
    study = analysis.study
    called = names(study) if titles else {arm: arm for arm in study.arms}
    blocks: dict[str, list[CardRow]] = {}
    compared: dict[str, list[Compared]] = {}
    references = dict.fromkeys(reference for _, reference in study.contrasts)
    for endpoint in study.judged:
        metric = analysis.metrics[endpoint.metric]
        mine = [verdict for verdict in verdicts if verdict.metric == metric.name]
        sign = -1 if metric.better == "higher" else 1
        mine.sort(key=lambda v: (v.effect is None, sign * (v.effect or 0.0)))
        targets = {one.target for one in mine if one.target}
        on = f", on {targets.pop()}" if len(targets) == 1 else ""
        title = f"{metric.change_title}{on}"
        compared[title] = [_compared(analysis, one, metric, called) for one in references]
        blocks[title] = [
            _row(analysis, one, called[one.arm], "" if on else one.target) for one in mine
        ]
    cautions = list(dict.fromkeys(c.text for v in verdicts for c in v.cautions))
    invalid = list(dict.fromkeys(v.evidence.invalid for v in verdicts if v.evidence.invalid))
    if missing := missing_in_words(analysis):
        invalid = [missing]
    cautions = [*invalid, *cautions]
    states = Counter(control.state for control in analysis.controls)
    held = states["held"] + states["declared"]
    proven = f"{held} of {sum(states.values())} controls hold"
    question = study.question or study.title or study.name
    if analysis.runs:
        proven = "controls: not recorded"
        question = f"Exploratory: {question}" if analysis.runs.exploratory else question
    return Card(
        question,
        blocks,
        compared,
        _reading(analysis, called),
        cautions[0] if cautions else "",
        max(len(cautions) - 1, 0),
        _action(study, verdicts, called),
        (
            f"{len(analysis.events)} of {analysis.n_trials} trials",
            proven,
            *filter(None, [excluded_in_words(analysis)]),
            *(["uncommitted changes"] if uncommitted(analysis) else ()),
        ),
        tuple(cautions),
        _beside(analysis, called) if analysis.runs else {},
    )


def _beside(analysis: Analysis, called: dict[str, str]) -> dict[str, list[tuple[str, str, str]]]:
    """Return how the arms changed on secondary endpoints, as they were asked for by name."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for one in beside(analysis):
        contrast = analysis.contrast(one.arm, one.metric)
        p = numbers.p_or_blank(one.adjusted_p)
        row = (called[one.arm], change_in_words(contrast), f"p {p}" if p else "")
        found.setdefault(contrast.declared.change_title, []).append(row)
    return found


def markdown(shown: Card) -> str:
    """Return a card as Markdown, for the comment of a pull request."""
    lines = [f"### {_plain(shown.question)}", ""]
    for metric, rows in shown.blocks.items():
        lines += [f"| | {_plain(metric)} | change | p |", "| --- | --- | --- | --- |"]
        for row in rows:
            note = f" ({row.note})" if row.note else ""
            cells = (note, row.arm, row.change, row.p.removeprefix("p "))
            note, *rest = map(_plain, cells)
            lines.append(f"| {' | '.join([f'**{row.word}**{note}', *rest])} |")
        lines.append("")
    for metric, others in shown.beside.items():
        lines += [f"| {_plain(metric)} (beside) | change | p |", "| --- | --- | --- |"]
        for arm, change, p in others:
            cells = (arm, change, p.removeprefix("p "))
            lines.append(f"| {' | '.join(map(_plain, cells))} |")
        lines.append("")
    lines.append(_plain(shown.reading))
    lines += [_plain(line) for line in (shown.action, *shown.cautions) if line]
    lines += ["", f"<sub>{_plain('; '.join(shown.facts))}.</sub>"]
    return "\n".join(lines) + "\n"


# What Markdown or HTML would take for its own, in the names of arms and files.
MARKED = re.compile(r"([\\`*_\[\]<>|#@~])")


def _plain(text: str) -> str:
    return MARKED.sub(r"\\\1", text.replace("\n", " "))


def chips(analysis: Analysis) -> list[Chip]:
    """Return what was looked at besides quality, as far as it was: trials, controls, stability,
    speed and calibration."""
    total, missing = analysis.n_trials, len(analysis.missing)
    found = [Chip(f"{total - missing} of {total} trials", "trials", "open" if missing else "")]
    if analysis.excluded:
        found.append(Chip(excluded_in_words(analysis), "trials", "open"))
    if states := Counter(control.state for control in analysis.controls):
        held = states["held"] + states["declared"]
        style = "bad" if states["broken"] else "good" if held == states.total() else "open"
        text = f"all else equal: {held} of {states.total()} controls hold"
        found.append(Chip(text, "controls", style))
    if events := analysis.events.values():
        stable = sum(not (one.diverged or one.spiked) for one in events)
        style = "good" if stable == len(events) else "open"
        found.append(Chip(f"stable: {stable} of {len(events)} trials", "stability", style))
    in_turn = [costs.throughput for costs in analysis.costs if costs.in_turn]
    calibration = [costs.calibration for costs in analysis.costs]
    found += _cost_chip("speed", "%", 1, -100, in_turn)
    found += _cost_chip("calibration error", " points", 2, 100, calibration)
    return found


def _cost_chip(
    what: str, unit: str, digits: int, scale: int, costs: list[Cost | None]
) -> list[Chip]:
    """Return a cost as it was measured: of one arm with its interval, of several their range."""
    there = [cost for cost in costs if cost is not None]
    if not there:
        return []
    means = sorted(scale * cost.mean for cost in there)
    if len(there) == 1:
        low, high = sorted((scale * there[0].interval.low, scale * there[0].interval.high))
        said = f"{numbers.signed(means[0], digits)}{unit} {numbers.interval(low, high, digits)}"
    else:
        said = f"{numbers.signed(means[0], digits)} to {numbers.signed(means[-1], digits)}{unit}"
    style = "bad" if any(cost.state == "over" for cost in there) else ""
    return [Chip(f"{what} {said}", "evaluation", style)]


def _compared(analysis: Analysis, arm: str, metric: Metric, called: dict[str, str]) -> Compared:
    summary, about = analysis.summary(arm, metric.name), analysis.study.arms[arm].description
    what = about if about != called[arm] else ""
    mean, n = summary.mean, summary.n
    # Where a look ended what is compared, the mean is that of the seeds that were compared.
    pairs = {
        one.seeds: one.paired.pairs
        for one in analysis.contrasts
        if one.paired and (one.reference, one.metric) == (arm, metric.name)
    }
    if len(pairs) == 1 and metric.scale == "linear":
        (compared,) = pairs.values()
        mean, n = sum(pair.baseline for pair in compared) / len(compared), len(compared)
    return Compared(
        called[arm], f"{metric.value_text(mean)}{'%' if metric.is_share else ''}", n, what
    )


def _row(analysis: Analysis, verdict: Verdict, called: str, target: str) -> CardRow:
    contrast = analysis.contrast(verdict.arm, verdict.metric)
    change, p = change_in_words(contrast), numbers.p_or_blank(verdict.adjusted_p)
    lost = divergence_in_words(analysis, verdict.arm) if not verdict.evidence.invalid else ""
    on = f"on {target}" if target else ""
    same = verdict.word == "SAME" and verdict.margin is not None
    inside = f"inside {margin_in_words(analysis.study, contrast)}" if same else ""
    note = "; ".join(filter(None, (inside, verdict.cost, lost, on)))
    few = f"n = {verdict.n}" if 0 < verdict.n < DESCRIPTIVE_BELOW else ""
    # The p is that of a difference, and says nothing of being too small to matter.
    shown = f"p {p}" if p and not same else few
    return CardRow(verdict.word, note, called, change, shown)


def _reading(analysis: Analysis, called: dict[str, str]) -> str:
    study, references = analysis.study, {ref for _, ref in analysis.study.contrasts}
    if not references:
        return "One arm alone: nothing is compared."
    against = called[references.pop()] if len(references) == 1 else "each arm's reference"
    better = {analysis.metrics[endpoint.metric].better for endpoint in study.judged}
    direction = f"; {better.pop()} is better" if len(better) == 1 else ""
    family = ", p by Holm's method" if study.family > 1 else ""
    counts = sorted({len(one.seeds) for one in analysis.contrasts if one.primary and one.decided})
    n = f" (n = {' to '.join(map(str, (counts[0], counts[-1])[: len(counts)]))})" if counts else ""
    n = n if study.is_paired else ""
    return (
        f"Change against {against}{at_the_same_seed(study)}{n}, "
        f"{numbers.level(study.inference.alpha)} interval{family}{direction}."
    )


def _action(study: Study, verdicts: list[Verdict], called: dict[str, str]) -> str:
    """Return what the rule says to do: the arms that it adopts, or that it keeps what there was;
    and of which arms it decides nothing. Empty where it decides nothing at all."""
    adopted = {called[v.arm] for v in verdicts if v.outcome == "ADOPT"}
    kept = [v for v in verdicts if v.outcome in KEEPING]
    left = [called[v.arm] for v in verdicts if v.outcome == "INCONCLUSIVE"]
    left = [arm for arm in dict.fromkeys(left) if arm not in adopted]
    if not adopted and not kept:
        return ""
    if adopted:
        said = f"adopt {listed([arm for arm in called.values() if arm in adopted])}"
    else:
        said = f"keep {listed(list(dict.fromkeys(called[v.reference] for v in kept)))}"
        if left:
            said += f" over {listed(list(dict.fromkeys(called[v.arm] for v in kept)))}"
    undecided = f"; undecided: {listed(left)}" if left else ""
    return f"By the rule {study.decision.rule}: {said}{undecided}."
