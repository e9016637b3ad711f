"""Names and sentences that tables, figures, page and paper share."""

from __future__ import annotations

import importlib
from collections import Counter

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Interacting
from paribus.decision import WORDS, Verdict, change_in_words
from paribus.digests import flatten
from paribus.readers import path_of
from paribus.results import Results
from paribus.study import Study
from paribus.study.trainer import COMMAND, RUNS, STACKED

MOST_SENTENCES = 8  # contrasts that are told one by one
MOST_LINES = 150  # trials that have a mark each
STATES = ("significant", "within the margin", "unresolved", "described only")


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


def headlines(analysis: Analysis, verdicts: list[Verdict]) -> list[str]:
    """Return a sentence for each primary endpoint: the word on each arm; of many, their counts."""
    if not verdicts:
        return ["One arm alone: nothing is compared."]
    called, told = analysis.study.called, []
    metrics = list(dict.fromkeys(verdict.metric for verdict in verdicts))
    for metric in metrics:
        mine = [verdict for verdict in verdicts if verdict.metric == metric]
        on = f"On {mine[0].label}: " if len(metrics) > 1 else ""
        if len(mine) > MOST_SENTENCES:
            counts = Counter(verdict.word for verdict in mine)
            said = [f"{counts[word]} {word}" for word in WORDS if counts[word]]
            told.append(f"{on}of {len(mine)} contrasts, {listed(said)}.")
            continue
        said = []
        for one in mine:
            change = change_in_words(analysis.contrast(one.arm, metric))
            test = (
                "Holm p" if analysis.study.family > 1 else "p"
            )  # the interval is of the plain one
            p = "" if one.adjusted_p is None else f", {test} {p_in_words(one.adjusted_p)}"
            lost = divergence_in_words(analysis, one.arm)
            why = one.evidence.invalid or f"{change}{p}{lost and '; '}{lost}"
            said.append(f"{called[one.arm]} is {one.badge} ({why})")
        told.append(f"{on}{'; '.join(said)}.")
    return told


def divergence_in_words(analysis: Analysis, arm: str) -> str:
    """Return `diverged in 5 of 5 seeds against 0 of 5`, which changes are not over; empty where no
    trial of the contrast did."""
    stability = analysis.stability(arm)
    if stability is None:
        return ""
    of = stability.diverged
    ours, theirs = of.treatment_events, of.baseline_events
    seeds = "seeds" if analysis.study.is_paired else "runs"
    told = f"diverged in {ours} of {of.n_treatment} {seeds} against {theirs} of {of.n_baseline}"
    return told if ours + theirs else ""


def at_the_same_seed(study: Study) -> str:
    """Return ` at the same seed`, of changes between pairs; empty where runs are none."""
    return " at the same seed" if study.is_paired else ""


def margin_in_words(study: Study, contrast: Contrast | Interacting) -> str:
    """Return `±0.02`, or `±5%` of what is compared as a ratio: as the study states it."""
    endpoint = next(e for e in study.endpoints if e.metric == contrast.metric)
    return f"±{contrast.declared.stated_text(endpoint.margin or 0)}"


def inside_in_words(study: Study, contrast: Contrast | Interacting) -> str:
    """Return `inside ±0.02`, of what is SAME; and of which interval, where that shown is not.

    Two one-sided tests at 5% go by the 90% interval, and it is the 95% one that is shown.
    """
    says = contrast.decided
    inside = f"inside {margin_in_words(study, contrast)}"
    if says is None or says.margin is None or says.interval.inside(says.margin):
        return inside
    return f"{numbers.level(2 * study.inference.alpha)} interval {inside}"


def p_in_words(p: float | None) -> str:
    """Return `= 0.013` or `< 0.001`."""
    return numbers.p_equals(p).replace(" ", "\N{NO-BREAK SPACE}")


def missing_in_words(analysis: Analysis) -> str:
    """Return what a study in progress still lacks; empty for a finished one."""
    total, missing = analysis.n_trials, len(analysis.missing)
    if not missing:
        return ""
    some = ", ".join(analysis.missing[:3]) + (" and others" if missing > 3 else "")
    return f"{total - missing} of {total} trials are finished; missing: {some}."


# What says in words how the trainers that ship train.
FACTS = {
    STACKED: "paribus.engine.facts:facts_of",
    COMMAND: "paribus.trainers.command.records:facts_of",
}
MOST_FILES = 3  # that are named


def trainer_facts(results: Results) -> dict[str, str]:
    """Return what is told of how trials are trained; of a trainer of one's own, its settings."""
    study = results.study
    if study.trainer in FACTS:
        module, _, name = FACTS[study.trainer].partition(":")
        return getattr(importlib.import_module(module), name)(results)
    if study.trainer == RUNS:
        return {"Trainer": "none: runs that were finished, as their files tell", **_files(results)}
    shared = flatten(study.format.shared(study))
    told = ", ".join(f"{key} = {value}" for key, value in shared.items())
    return {"Trainer": f"{study.trainer}, which is the user's own", "Settings": told}


def _files(results: Results) -> dict[str, str]:
    """Return of each arm which files its runs are of."""
    found: dict[str, list[str]] = {}
    for (arm, _), trial in results.trials.items():
        found.setdefault(arm, []).append(str(trial.get("facts", {}).get("source", "")))
    told = {}
    for arm, sources in found.items():
        files = list(dict.fromkeys(path_of(source) for source in sources if source))
        of = f" of {numbers.some(files, MOST_FILES)}" if files else ""
        told[f"Runs of {arm}"] = f"{len(sources)}{of}"
    return told
