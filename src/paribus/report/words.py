"""Names and sentences that tables, figures, page and paper share.

The verdict has one wording for every row, which claims what the row stands for and no more:
"raises" and "lowers" are for contrasts that the registered test has shown, all others "changed by"
in what was measured.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Stabilities
from paribus.decision import (
    OUTCOMES,
    UNJUDGED,
    Verdict,
    benefit_of,
    divergence_in_words,
    rule_of,
    untested,
    worse_elsewhere,
)
from paribus.digests import flatten
from paribus.results import Results
from paribus.study import Study, at_rates
from paribus.study.trainer import STACKED

MOST_SENTENCES = 3  # contrasts that are told one by one
MOST_LINES = 150  # trials that have a mark each
STATES = ("significant", "within the margin", "unresolved", "described only")


def names(study: Study) -> dict[str, str]:
    """Return the title of every arm, or its name where titles are not unique."""
    titles = {arm: study.arms[arm].title or arm for arm in study.arms}
    return titles if len(set(titles.values())) == len(titles) else {arm: arm for arm in titles}


def listed(words: list[str]) -> str:
    """Return `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def is_large(results: Results) -> bool:
    """Tell if there are too many trials for a mark each, so that figures and tables sum them up."""
    return len(results.finished) > MOST_LINES


def state_of(contrast: Contrast, alpha: float) -> str:
    """Return what the test of a primary contrast found: one of STATES."""
    says = contrast.decided
    if says is None or says.descriptive_only or contrast.holm_p is None:
        return "described only"
    if contrast.equivalent(alpha):
        return "within the margin"
    return "significant" if contrast.significant(alpha) else "unresolved"


class Clause(NamedTuple):
    """The decision on one arm: `Keep the baseline`, and why."""

    lead: str
    why: str


def headline(analysis: Analysis, verdicts: list[Verdict]) -> str:
    """Return the verdict on the whole study, and of which text it is, where a part is sealed."""
    of_text = [analysis.text] if verdicts and analysis.text else []
    return " ".join([*headlines(analysis, verdicts), *of_text])


def headlines(analysis: Analysis, verdicts: list[Verdict]) -> list[str]:
    """Return a sentence for each contrast on each primary endpoint; of many, their counts."""
    if not verdicts:
        return ["One arm alone: nothing is compared."]
    told = []
    metrics = list(dict.fromkeys(verdict.metric for verdict in verdicts))
    for metric in metrics:
        mine = [verdict for verdict in verdicts if verdict.metric == metric]
        on = f"On {mine[0].label}: " if len(metrics) > 1 else ""
        told += [f"{on}{sentence}" for sentence in _sentences(analysis, mine)]
    return told


def _sentences(analysis: Analysis, verdicts: list[Verdict]) -> list[str]:
    """Return the verdicts on one endpoint."""
    if len(verdicts) > MOST_SENTENCES:
        return [_counts(analysis.study, verdicts)]
    clauses = [clause(analysis, verdict) for verdict in verdicts]
    return [f"{one.lead}: {one.why}." for one in clauses]


def clause(analysis: Analysis, verdict: Verdict) -> Clause:
    """Return the wording of the row that fired."""
    study, row = analysis.study, rule_of(analysis).all_rows[verdict.row]
    contrast = analysis.contrast(verdict.arm, verdict.metric)
    benefit = benefit_of(analysis, verdict.arm)
    words = {
        "metric": contrast.declared.label,
        "benefit": changed(benefit) if benefit else "none is registered",
        "arm": names(study)[verdict.arm],
        "base": reference_name(study, verdict.reference),
        "invalid": verdict.evidence.invalid,
        "pairs": numbers.plural(verdict.evidence.n, "seed pair"),
        "effect": changed(contrast),
        "shown": raised(contrast),
        "events": events_in_words(analysis, verdict),
        "threshold": _threshold(analysis, verdict),
        "elsewhere": " and ".join(map(raised, worse_elsewhere(analysis, contrast))),
        "margin": f"the registered margin of {margin_in_words(study, contrast)}",
    }
    why = row.why.format(**words)
    if row.open == "quality" and untested(contrast):
        why += f"; {untested(contrast)}"
    diverged = divergence_in_words(analysis, verdict.arm)
    if diverged and row.outcome != "INVALID":
        why += f"; {words['arm']} {diverged}"
    why += _way_out(verdict, row.open) + _items(contrast) + _disagreement(contrast)
    why += _late(analysis)
    lead = OUTCOMES[row.outcome].lead.format(**words)
    if row.outcome not in UNJUDGED:
        lead += f" {at_rates(study, verdict.arm, verdict.reference)}"
    return Clause(lead, why)


def margin_in_words(study: Study, contrast: Contrast) -> str:
    """Return `±0.02`, or `±5%` of what is compared as a ratio: as the study states it."""
    endpoint = next(e for e in study.endpoints if e.metric == contrast.metric)
    margin = endpoint.margin or 0
    return f"±{margin:.3g}" if contrast.declared.scale == "linear" else f"±{100 * margin:.3g}%"


def changed(contrast: Contrast) -> str:
    """Return `validation loss changed by +0.0123 nats/token (95% interval +0.01 to +0.02)`."""
    metric = contrast.declared
    if contrast.decided is None:
        return f"{metric.label} cannot be compared ({contrast.why_not})"
    size = numbers.signed(contrast.decided.mean, metric.change_digits)
    change = _with_unit(size, metric.change_unit)
    return f"{metric.label} changed by {change} ({evidence_on(contrast)})"


def raised(contrast: Contrast) -> str:
    """Return `raises validation loss by 0.0952 nats/token (...)`, of a change that was shown."""
    metric = contrast.declared
    if contrast.decided is None:
        return f"has no comparable {metric.label}"
    verb = "raises" if contrast.decided.mean > 0 else "lowers"
    size = numbers.fixed(abs(contrast.decided.mean), metric.change_digits)
    by = _with_unit(size, metric.change_unit)
    return f"{verb} {metric.label} by {by} ({evidence_on(contrast)})"


def evidence_on(contrast: Contrast) -> str:
    """Return `95% interval +0.0899 to +0.1005, n = 5, Holm p <0.001`."""
    says, metric = contrast.decided, contrast.declared
    assert says is not None
    span = numbers.span(says.interval.low, says.interval.high, metric.change_digits)
    parts = [
        f"{says.interval.level:.0%} interval {span}",
        f"n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{says.n}",
    ]
    if contrast.items_about:
        parts.append(contrast.items_about)
    p, adjusted = contrast.p, contrast.tested_p
    if p is not None and says.family > 1:  # the interval inverts this one
        parts.append(f"p\N{NO-BREAK SPACE}{p_in_words(p)}")
    if adjusted is not None:
        parts.append(f"Holm\N{NO-BREAK SPACE}p\N{NO-BREAK SPACE}{p_in_words(adjusted)}")
    return ", ".join(parts)


def p_in_words(p: float | None) -> str:
    """Return `= 0.013` or `< 0.001`."""
    return numbers.p_equals(p).replace(" ", "\N{NO-BREAK SPACE}")


def ratio_in_words(contrast: Contrast) -> str:
    """Return a change of loss as a perplexity ratio, or of speed as one; empty for others."""
    says = contrast.decided
    if says is None or not contrast.declared.ratio:
        return ""
    between = numbers.ratio_interval(says.interval.low, says.interval.high, 3)
    return f"{contrast.declared.ratio} of {numbers.ratio(says.mean, 3)} {between}"


def events_in_words(analysis: Analysis, verdict: Verdict) -> str:
    """Return how many trials diverged or spiked, with the arm and without."""
    stability = analysis.stability(verdict.arm)
    if stability is None:
        return "no pair of trials is finished"
    rates = stability.any_event
    base, arm = rates.both + rates.only_baseline, rates.both + rates.only_treatment
    return (
        f"{base} of {rates.n} trials diverged or spiked without it, {arm} of {rates.n} with it, "
        f"{holm_in_words(stability)}"
    )


def holm_in_words(stability: Stabilities) -> str:
    """Return `Holm p = 0.013`, or that nothing was tested."""
    p = stability.holm_p
    return "too few pairs to test" if p is None else f"Holm p {p_in_words(p)}"


def _threshold(analysis: Analysis, verdict: Verdict) -> str:
    """Return that a baseline with events counts as stable by a threshold; empty if it has none."""
    stability = analysis.stability(verdict.arm)
    rates = stability.any_event if stability else None
    events = rates.both + rates.only_baseline if rates else 0
    if rates is None or events == 0:
        return ""
    return f" by the registered threshold ({events} of {rates.n} trials had an event)"


def reference_name(study: Study, reference: str) -> str:
    """Return `the baseline` where it is called so, else its name."""
    name = names(study)[reference]
    return "the baseline" if name == "baseline" else name


def missing_in_words(analysis: Analysis) -> str:
    """Return what a study in progress still lacks; empty for a finished one."""
    total, missing = analysis.n_trials, len(analysis.missing)
    if not missing:
        return ""
    some = ", ".join(analysis.missing[:3]) + (" and others" if missing > 3 else "")
    return f"{total - missing} of {total} trials are finished; missing: {some}."


def _way_out(verdict: Verdict, open_: str) -> str:
    if verdict.pairs_needed is None:
        return ""
    does = "show a cure at these rates" if open_ == "cure" else "tell"
    return f"; about {verdict.pairs_needed} seed pairs would {does}"


def _items(contrast: Contrast) -> str:
    if not contrast.items_why_not or contrast.decided is None:
        return ""
    return f"; this is about these items, not new ones, as {contrast.items_why_not}"


def _disagreement(contrast: Contrast) -> str:
    """Return tests that find something else than the one that decides."""
    others = [check for check in contrast.checks if check.disagrees]
    if not others or contrast.decided is None or contrast.decided.descriptive_only:
        return ""
    told = " and ".join(f"{c.test} (Holm p {p_in_words(c.holm_p)})" for c in others)
    return f"; other tests disagree: {told}"


def _late(analysis: Analysis) -> str:
    if not analysis.late_seeds:
        return ""
    seeds = ", ".join(map(str, analysis.late_seeds))
    return f"; seeds were added after results had been seen ({seeds}), so no error rate holds"


def _counts(study: Study, verdicts: list[Verdict]) -> str:
    parts = []
    for outcome, words in OUTCOMES.items():
        arms = [verdict.arm for verdict in verdicts if verdict.outcome == outcome]
        if arms:
            parts.append(f"{len(arms)} {words.several}")
    rates = {at_rates(study, verdict.arm, verdict.reference) for verdict in verdicts}
    where = rates.pop() if len(rates) == 1 else "at the learning rates of their arms"
    return f"Of {len(verdicts)} contrasts, {', '.join(parts)}, {where}."


def _with_unit(number: str, unit: str) -> str:
    return f"{number} {unit}" if unit else number


# What says in words how the trainers that ship train.
FACTS = {STACKED: "paribus.engine.facts:facts_of"}


def trainer_facts(results: Results) -> dict[str, str]:
    """Return what is told of how trials are trained; of a trainer of one's own, its settings."""
    study = results.study
    if study.trainer in FACTS:
        module, _, name = FACTS[study.trainer].partition(":")
        return getattr(importlib.import_module(module), name)(results)
    shared = flatten(study.format.shared(study))
    told = ", ".join(f"{key} = {value}" for key, value in shared.items())
    return {"Trainer": f"{study.trainer}, which is the user's own", "Settings": told}
