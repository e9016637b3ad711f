"""Verification of results folders (`paribus verify`).

All values derived from records are recomputed and compared: digests, scores from recorded sums and
answers, tuned values from tuning trials, analysis and verdicts from scores. Each difference is
reported as a one-line finding.

Verification shows that a folder is consistent, which a fabricated folder can be, too (see
docs/explanation/security.md).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paribus.analysis import analyse, tuning_record
from paribus.analysis.tuning import values_of
from paribus.comparison import agree, differences
from paribus.decision import decide
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.numbers import plural, some
from paribus.report.model import build_report
from paribus.report.record import verdict_record
from paribus.results import (
    Results,
    ResultsFolder,
    load_results,
    read_registration,
)
from paribus.results.formats import read_json
from paribus.results.records import records_of
from paribus.results.registration import from_study
from paribus.results.store import OF_THE_STUDY, TUNING, root_digest
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study, changed_files
from paribus.study.trainer import COMMAND, STACKED
from paribus.study.tuning_study import FOLDER
from paribus.untrusted_io import is_regular
from paribus.verification.scores import item_findings, score_findings

# Keys of analysis.json and verdict.json that hold sentences. Anything else is a number or a code.
SENTENCES = frozenset(
    {
        *("caveats", "detail", "invalid", "items_about", "items_why_not", "label", "needs"),
        *("reason", "reasons", "statement", "text", "unregistered", "untested", "why", "why_not"),
    }
)


@dataclass
class Verification:
    """Outcome of `verify`: checks performed, differences found, and missing records.

    Attributes:
        root: digest over registrations and manifests (see `paribus.results.store`).
        checked: one line per kind of check, with counts.
        findings: one line per difference.
        unfinished: one line per group of records that running the study again would add.
    """

    root: str
    checked: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


def verify(path: str | os.PathLike[str], *, trust: bool = False) -> Verification:
    """Verify the results folder or archive at `path`, without writing any files.

    Args:
        path: results folder or archive.
        trust: whether to run custom readers referenced by the folder.
    """
    folder = ResultsFolder(Path(path))
    outcome = _check(folder, trust=trust)
    if (tuning := folder.tuning_trials).exists:
        inner = _check(tuning, trust=trust)
        outcome.checked.append("tuning trials and tuned values")
        outcome.findings += [f"{FOLDER}/: {line}" for line in inner.findings]
        outcome.unfinished += [f"{FOLDER}/: {line}" for line in inner.unfinished]
    return outcome


def _check(folder: ResultsFolder, *, trust: bool) -> Verification:
    """Verify a results folder, excluding its tuning trials."""
    study, outcome = folder.read_study(trust=trust), Verification(root_digest(folder.path))
    trials = [folder.trial(arm, seed) for arm, seed in study.trials]
    finished = [trial for trial in trials if trial.is_finished]
    outcome.checked.append(f"digests of {len(finished)} of {len(trials)} trials")
    findings = [*_seals(study, folder, finished), *changed_files(folder.records)]
    try:
        results = load_results(folder.path, trust=trust)
        outcome.checked.append("registration")
        if folder.read_runs() is not None:
            outcome.checked.append("source files of runs, if present at their recorded paths")
            findings += filter(None, [folder.runs_changed()])
        outcome.unfinished += _unfinished(results)
        findings += registration_findings(results)
        findings += tuning_findings(results)
        findings += _scores(results, outcome.checked)
        if results.finished:
            findings += derived(results, outcome.checked)
    except ParibusError as error:  # nothing can be computed from records that cannot be read
        findings.append(str(error))
    outcome.findings += dict.fromkeys(findings)
    return outcome


def registration_findings(results: Results) -> Iterator[str]:
    """Yield differences between registration and study, and missing or changed registrations.

    Each registration records the digest of the one that it supersedes.
    """
    registered = read_registration(ResultsFolder(results.path))
    if registered is None:
        yield "registration.json is missing, so the registration cannot be verified"
        return
    yield from (f"study.json: {key} was edited after registration" for key in results.edited)
    study = results.study
    for name, value in from_study(study, registered["tasks"]).items():
        if not agree(registered.get(name), value):
            yield f"registration.json: '{name}' differs from study.json"
    for number in range(registered["number"] - 1, 0, -1):
        path = results.path / f"registration-{number}.json"
        if not is_regular(path) or file_digest(path) != registered.get("supersedes"):
            yield f"{path.name} is missing or was changed after it was superseded"
            return
        registered = read_json(path)


def _scores(results: Results, checked: list[str]) -> Iterator[str]:
    """Yield differences between recorded scores and scores recomputed from sums and answers."""
    if results.study.trainer == COMMAND:
        from paribus.trainers.command.scores import verified

        findings, looked_at = verified(results)
        checked += looked_at
        yield from findings
        return
    is_stacked = results.study.trainer == STACKED
    parts = "evaluation.parquet" if is_stacked else records_of(results.study).blocks
    trials = [trial for trial in results.finished if is_regular(trial.path / parts)]
    n = f"scores of {plural(len(trials), 'trial')}, recomputed"
    checked.append(n if trials else "scores: not recomputable from these records")
    for trial in trials:
        try:
            yield from score_findings(trial) if is_stacked else item_findings(trial)
        except ParibusError as error:
            yield f"{trial.label}: {error}"


def _seals(study: Study, results: ResultsFolder, finished: list[TrialFolder]) -> Iterator[str]:
    form = records_of(study)
    for trial in finished:
        try:
            trial.verify(form.required)
        except ParibusError as error:
            yield str(error)
    for name in OF_THE_STUDY:
        try:
            if not results.has_sealed(name) and is_regular(results.path / name):
                yield f"{name} has no recorded digest and is therefore ignored"
        except ParibusError as error:
            yield str(error)


def _unfinished(results: Results) -> Iterator[str]:
    """Yield a line per kind of missing record: trials, or scores on the sealed test split."""
    if results.unfinished:
        missing = [trial.label for trial in results.unfinished]
        yield f"{some(missing)} missing, of {results.n_trials} trials"
    elif results.why_not_tested:
        yield results.why_not_tested


def tuning_findings(results: Results) -> Iterator[str]:
    """Yield differences between tuned values in the records and in the tuning trials."""
    study, record = results.study, ResultsFolder(results.path).read_sealed(TUNING)
    if study.tuning is not None and results.tuning_trials is not None:
        fresh = tuning_record(study, results.tuning_trials)
        if differing := list(differences({key: record.get(key) for key in fresh}, fresh)):
            yield f"tuning.json differs from the tuning trials in {some(differing)}"
        if study.tuning.chosen and not agree(study.tuning.chosen, values_of(fresh)):
            yield "tuned values in study.json differ from those computed from the tuning trials"


def derived(results: Results, checked: list[str]) -> Iterator[str]:
    """Recompute analysis and verdicts, and yield broken controls and differences from the files."""
    analysis = analyse(results)
    if analysis.unregistered:
        yield analysis.unregistered
    for control in analysis.controls:
        if control.state == "broken":
            yield f"control '{control.name}' of {control.arm} is broken: {control.detail}"
    if states := Counter(control.state for control in analysis.controls):
        counts = ", ".join(f"{n} {state}" for state, n in states.items())
        checked.append(f"{states.total()} controls, recomputed: {counts}")
    checked.append("analysis and verdicts, recomputed")
    fresh = {
        "analysis.json": analysis.to_dict(),
        "verdict.json": verdict_record(build_report(decide(analysis))),
    }
    for name, value in fresh.items():
        if is_regular(results.path / name):  # `report` writes it, at any time
            stated, now = read_json(results.path / name), json.loads(canonical_json(value))
            if differing := list(differences(stated, now, SENTENCES)):
                yield f"{name} differs from the records in {some(differing)}"
