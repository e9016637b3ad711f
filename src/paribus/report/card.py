"""The card: the word on each arm, by how much and how sure, on some ten lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from paribus import numbers
from paribus.analysis import Analysis, Cost
from paribus.decision import (
    Depends,
    DependsWord,
    Verdict,
    Word,
    beside,
    change_in_words,
    depends,
    excluded_in_words,
    losses_in_words,
    no_partner_in_words,
    rule_of,
    size_in_words,
    uncommitted,
)
from paribus.metric import Metric
from paribus.report.words import (
    at_the_same_seed,
    divergence_in_words,
    inside_in_words,
    listed,
    missing_in_words,
)
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Study

ON_CARD = ("all_diverged", "unequal_size")  # codes of cautions that stand beside the words
MOST_NAMED = 3  # arms in a sentence, or beside a cost
UNDECIDED = "nothing is decided"
KEEPING = ("BASELINE", "IMPROVES", "NO EFFECT", "REJECT")  # outcomes by which the reference stays


@dataclass(frozen=True)
class CardRow:
    """An arm on one endpoint.

    Attributes:
        note: what its cost is, in how many seeds it diverged, and what the claim is about where
            arms of one endpoint differ in that.
        p: of the test that decides; where too few pairs are left to test, how many there are.
    """

    word: Word | DependsWord
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
        lead: what comes before any word: that every trial of an arm diverged; empty for nothing.
        overruled: why the registered rule keeps what a BETTER arm was compared with; empty where
            it does not.
        blocks: by the endpoint and what its claims are about, its arms: the best change first.
        compared: by the same, what they are compared with.
        reading: how to read the numbers, a line.
        cautions: what the answer depends on, the most important first.
        action: what the registered rule says to do; empty where it says nothing.
        facts: trials and controls, counted.
        beside: of runs that are judged, by secondary endpoint the arm, its change and its p.
    """

    question: str
    lead: str
    blocks: dict[str, list[CardRow]]
    compared: dict[str, list[Compared]]
    reading: str
    action: str
    facts: tuple[str, ...]
    overruled: str = ""
    cautions: tuple[str, ...] = ()
    beside: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)


def card(analysis: Analysis, verdicts: list[Verdict]) -> Card:
    """Return the card of a study; it calls arms by their titles, and by their names where the study
    of `analysis` has none (`Analysis.by_name`)."""
    study, called = analysis.study, analysis.study.called
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
        title = f"{_titled(metric)}{on}"
        compared[title] = [_compared(analysis, one, metric, called) for one in references]
        blocks[title] = [
            _row(analysis, one, called[one.arm], "" if on else one.target) for one in mine
        ]
    for one in depends(analysis, verdicts):
        title = f"{analysis.metrics[one.metric].change_title}, difference between effects"
        blocks.setdefault(title, []).append(_depends_row(study, one))
        compared[title] = []
    told = [c for v in verdicts for c in v.cautions if c.code not in ON_CARD]
    shown = [one.text for one in told]
    invalid = list(dict.fromkeys(v.evidence.invalid for v in verdicts if v.evidence.invalid))
    if missing := missing_in_words(analysis):
        invalid = [missing]
    cautions = list(dict.fromkeys([*invalid, *shown]))
    states = Counter(control.state for control in analysis.controls)
    held = states["held"] + states["declared"]
    proven = f"{held} of {sum(states.values())} controls hold"
    question = study.question or study.title or study.name
    if analysis.runs:
        proven = "controls: not recorded"
        if study.is_paired and told and told[0].code != "pairs_assumed":
            proven += "; pairs are assumed to share data and initial values"
        question = f"Exploratory: {question}" if analysis.runs.exploratory else question
    every = [arm for arm in study.arms if analysis.all_diverged(arm)]
    lost = [called[arm] for arm in every]
    ended = "diverged or failed" if analysis.excluded.keys() & set(every) else "diverged"
    return Card(
        question,
        f"Every trial of {'every arm' if len(lost) == len(called) else listed(lost)} {ended}."
        if lost
        else "",
        blocks,
        compared,
        _reading(analysis, called),
        _action(analysis, verdicts),
        (
            f"{analysis.n_finished} of {analysis.n_trials} trials",
            proven,
            *filter(None, [no_partner_in_words(analysis), excluded_in_words(analysis)]),
            *(["uncommitted changes"] if uncommitted(analysis) else ()),
        ),
        _overruled(analysis, verdicts),
        tuple(cautions),
        _beside(analysis, called) if analysis.runs else {},
    )


def _titled(metric: Metric) -> str:
    """Return `validation loss (nats/token), lower is better`; an accuracy goes without saying."""
    is_plain = metric.better == "neither" or (metric.is_share and metric.better == "higher")
    return metric.change_title + ("" if is_plain else f", {metric.better} is better")


def _beside(analysis: Analysis, called: dict[str, str]) -> dict[str, list[tuple[str, str, str]]]:
    """Return how the arms changed on secondary endpoints, as they were asked for by name."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for one in beside(analysis):
        contrast = analysis.contrast(one.arm, one.metric)
        p = numbers.p_or_blank(one.adjusted_p)
        change = change_in_words(contrast)
        late = {one.arm: one.never_reached[0], one.reference: one.never_reached[1]}
        if said := ", ".join(f"{n} of {called[arm]}" for arm, n in late.items() if n):
            change += f" (never there: {said})"
        row = (called[one.arm], change, f"p {p}" if p else "")
        found.setdefault(contrast.declared.change_title, []).append(row)
    return found


def markdown(shown: Card) -> str:
    """Return a card as Markdown, for the comment of a pull request."""
    lines = [f"### {_plain(shown.question)}", ""]
    for line in filter(None, (shown.lead, shown.overruled)):
        lines += [f"**{_plain(line)}**", ""]
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
    left_out = no_partner_in_words(analysis), excluded_in_words(analysis)
    found += [Chip(words, "trials", "open") for words in left_out if words]
    if states := Counter(control.state for control in analysis.controls):
        held = states["held"] + states["declared"]
        style = "bad" if states["broken"] else "good" if held == states.total() else "open"
        text = f"all else equal: {held} of {states.total()} controls hold"
        found.append(Chip(text, "controls", style))
    if events := [one for one in analysis.events.values() if one.has_losses]:
        stable = sum(not (one.diverged or one.spiked) for one in events)
        style = "good" if stable == len(events) else "open"
        found.append(Chip(f"stable: {stable} of {len(events)} trials", "stability", style))
    in_turn = {costs.arm: costs.throughput for costs in analysis.costs if costs.in_turn}
    calibration = {costs.arm: costs.calibration for costs in analysis.costs}
    found += _cost_chip(analysis, "speed", "%", 1, -100, in_turn)
    found += _cost_chip(analysis, "calibration error", " points", 2, 100, calibration)
    return found


def _cost_chip(
    analysis: Analysis,
    what: str,
    unit: str,
    digits: int,
    scale: int,
    costs: Mapping[str, Cost | None],
) -> list[Chip]:
    """Return a cost as it was measured: of one arm with its interval, of a few arm by arm, of more
    the least and the largest with their arms."""
    called = analysis.study.called
    there = {called[arm]: cost for arm, cost in costs.items() if cost is not None}
    if not there:
        return []
    style = "bad" if any(cost.state == "over" for cost in there.values()) else ""
    if len(there) == 1:
        (cost,) = there.values()
        low, high = sorted((scale * cost.interval.low, scale * cost.interval.high))
        said = f"{numbers.signed(scale * cost.mean, digits)}{unit}"
        said += f" {numbers.interval(low, high, digits)}"
        return [Chip(f"{what} {said}", "evaluation", style)]
    told = sorted((scale * cost.mean, arm) for arm, cost in there.items())
    named = [f"{arm} {numbers.signed(mean, digits)}{unit}" for mean, arm in told]
    if len(named) > MOST_NAMED:
        return [Chip(f"{what}: from {named[0]} to {named[-1]}", "evaluation", style)]
    return [Chip(f"{what}: {', '.join(named)}", "evaluation", style)]


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
    p, lost = numbers.p_or_blank(verdict.adjusted_p), ""
    change = change_in_words(contrast)
    if not verdict.evidence.invalid:
        lost = divergence_in_words(analysis, verdict.arm)
        if lost and contrast.decided is None:
            change, lost = lost, ""
    on = f"on {target}" if target else ""
    same = verdict.word == "SAME" and verdict.margin is not None
    inside = inside_in_words(analysis.study, contrast) if same else ""
    size = size_in_words(analysis, verdict.arm)
    needs = ""
    if verdict.word == "UNRESOLVED" and contrast.decided is not None:
        needs = f"needs {verdict.needs}" if verdict.needs else verdict.pairs_why_not
    note = "; ".join(filter(None, (inside, needs, verdict.cost, size, lost, on)))
    few = f"n = {verdict.n}" if 0 < verdict.n < DESCRIPTIVE_BELOW else ""
    # The p is that of a difference, and says nothing of being too small to matter.
    shown = f"p {p}" if p and not same else few
    return CardRow(verdict.word, note, called, change, shown)


def _depends_row(study: Study, one: Depends) -> CardRow:
    says, p = one.found.decided, numbers.p_or_blank(one.adjusted_p)
    change = (
        one.found.declared.delta_text(says.mean, says.interval.low, says.interval.high)
        if says
        else ""
    )
    same = one.word == "SAME"
    note = inside_in_words(study, one.found) if same else one.why_not
    few = f"n = {one.n}" if 0 < one.n < DESCRIPTIVE_BELOW else ""
    return CardRow(one.word, note, one.title, change, f"p {p}" if p and not same else few)


def _reading(analysis: Analysis, called: dict[str, str]) -> str:
    study, references = analysis.study, {ref for _, ref in analysis.study.contrasts}
    if not references:
        return "One arm alone: nothing is compared."
    against = " against its reference"
    if len(references) == 1:
        against = f" against {called[references.pop()]}"
    elif len(study.contrasts) <= MOST_NAMED:
        each = [f"of {called[arm]} against {called[base]}" for arm, base in study.contrasts]
        against = f" {listed(each)},"
    family = ", p by Holm's method" if study.family > 1 else ""
    counts = sorted({len(one.seeds) for one in analysis.contrasts if one.primary and one.decided})
    n = f" (n = {' to '.join(map(str, (counts[0], counts[-1])[: len(counts)]))})" if counts else ""
    n = n if study.is_paired else ""
    tests = [one.decided for one in analysis.contrasts if one.primary and one.decided]
    told = f"Change{against}{at_the_same_seed(study)}{n}"
    if tests and not any(test.has_interval for test in tests):
        return f"{told}."
    return f"{told}, {numbers.level(study.inference.alpha)} interval{family}."


def _action(analysis: Analysis, verdicts: list[Verdict]) -> str:
    """Return what the rule says to do: the arms that it adopts, or that it keeps what there was;
    and of which arms it decides nothing. Of several endpoints each has its own, where they differ;
    empty where nothing at all is decided."""
    said = {}
    for verdict in verdicts:
        said.setdefault(verdict.label, []).append(verdict)
    clauses = {label: _clause(analysis, mine) for label, mine in said.items()}
    if not any(v.outcome == "ADOPT" or v.outcome in KEEPING for v in verdicts):
        return ""
    # That a better arm is not adopted is said first; of the rest, what is decided.
    if told_first := {v.label for v in verdicts if _is_overruled(v)}:
        clauses = {label: told for label, told in clauses.items() if label not in told_first}
        if set(clauses.values()) <= {UNDECIDED}:
            return ""
    if len(set(clauses.values())) == 1:
        told = next(iter(clauses.values()))
    else:
        told = "; ".join(f"on {label} {clause}" for label, clause in clauses.items())
    return f"By the rule {rule_of(analysis).name}: {told}{_but(analysis, verdicts)}."


def _but(analysis: Analysis, verdicts: list[Verdict]) -> str:
    """Return `, but new is worse in accuracy (...)` for every adopted arm; empty for no loss."""
    losses = {}
    for verdict in verdicts:
        contrast = analysis.contrast(verdict.arm, verdict.metric)
        if verdict.outcome == "ADOPT" and (words := losses_in_words(analysis, contrast)):
            losses[analysis.study.called[verdict.arm]] = words
    if not losses:
        return ""
    return ", but " + ", and ".join(f"{arm} is worse in {words}" for arm, words in losses.items())


def _is_overruled(verdict: Verdict) -> bool:
    return verdict.word == "BETTER" and verdict.outcome in KEEPING and bool(verdict.reason)


def _overruled(analysis: Analysis, verdicts: list[Verdict]) -> str:
    kept = [v for v in verdicts if _is_overruled(v)]
    if not kept:
        return ""
    on = listed(list(dict.fromkeys(v.label for v in kept)))
    rule = rule_of(analysis).name
    return f"Better on {on}, but not adopted: by the rule {rule} {kept[0].reason}."


def _clause(analysis: Analysis, verdicts: list[Verdict]) -> str:
    """Return what the rule says on one endpoint."""
    called = analysis.study.called
    adopted = [called[v.arm] for v in verdicts if v.outcome == "ADOPT"]
    kept = [v for v in verdicts if v.outcome in KEEPING]
    left = [called[v.arm] for v in verdicts if v.outcome == "INCONCLUSIVE"]
    if adopted:
        told = f"adopt {_some(adopted, len(verdicts))}"
    elif kept:
        references = list(dict.fromkeys(called[v.reference] for v in kept))
        several = "the reference" if left else "each reference"
        told = f"keep {references[0] if len(references) == 1 else several}"
        if left:
            told += f" over {_some([called[v.arm] for v in kept], len(verdicts))}"
    else:
        return UNDECIDED
    return told + (f" ({_some(left, len(verdicts))} undecided)" if left else "")


def _some(arms: list[str], of: int) -> str:
    """Return arms as a list; of more than a few how many: `5 of 6 arms`."""
    return listed(arms) if len(arms) <= MOST_NAMED else f"{len(arms)} of {of} arms"
