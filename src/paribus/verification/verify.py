"""`paribus verify`: seals, registration, layout; scores, analysis and verdict computed again.

Everything that can be derived is derived once more from what it was derived from: scores from
blocks and questions, analysis and verdict from scores, and, where asked, the records of a trial
from its weights, its seed and the text. What does not agree is a finding, one line each.

All of this is about integrity: a folder that agrees with itself may have been made up. See
docs/security.md.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.analysis import analyse
from paribus.comparison import Comparison, compare
from paribus.decision import decide
from paribus.digests import canonical_json
from paribus.engine import INSTALL, has_engine
from paribus.errors import ParibusError
from paribus.migrations import leniency
from paribus.results import Results, ResultsFolder, load_results, readable, why_not_tested
from paribus.results.formats import read_json, read_record
from paribus.results.keeping import of_kept
from paribus.results.root import root_digest
from paribus.results.store import KEPT, OF_THE_STUDY, TEST_PART
from paribus.results.trial_folder import (
    CANONICAL,
    MANIFEST,
    MEASUREMENTS,
    WEIGHTS,
    TrialFolder,
    weights_file,
)
from paribus.study import Study, changed_files, own_parts, parse_study, require_trust
from paribus.study.tuning_study import FOLDER
from paribus.untrusted_io import is_regular
from paribus.verification.arms import arm_findings
from paribus.verification.chosen import tuning_findings
from paribus.verification.registered import registration_findings
from paribus.verification.scores import score_findings

if TYPE_CHECKING:
    from paribus.engine.execution.backends import Backend
    from paribus.engine.execution.workers.processes import Device

# Keys of analysis.json and verdict.json that hold sentences. Anything else is a number or a code.
SENTENCES = frozenset(
    {
        *("answer", "caveats", "claim_checks", "detail", "invalid", "items_about"),
        *("items_why_not", "label", "reason", "sentence", "text", "tie_breaks"),
        *("unregistered", "untested", "why", "why_not"),
    }
)
SHOWN = 5  # of the keys in which a file differs
# Beside the sealed records, what a trial's folder may hold.
BESIDE = frozenset({"manifest.json", "timing.json"})


@dataclass(frozen=True)
class Verification:
    """What was checked, and what does not agree.

    Attributes:
        root: the digest over registrations and manifests (`paribus.results.root`).
        checked: what was looked at, in words, with counts.
        findings: a line for each thing that does not agree; empty where all does.
    """

    root: str
    checked: tuple[str, ...]
    findings: tuple[str, ...]


def verify(
    path: str | os.PathLike[str],
    *,
    trials: bool = False,
    folder: str | os.PathLike[str] | None = None,
    trust: bool = False,
    workers: int | None = None,
    device: Device = "auto",
    backend: str | Backend = "local",
) -> Verification:
    """Check the results folder, or the kept study, at `path`; nothing is written.

    Args:
        trials: build every trial's model, evaluate its weights again, draw its initial values and
            batches again from its seed, and count again what data.json says of the text.
        folder: where a relative `data.path` of the study starts, for `trials`; by default `path`.
        trust: run the custom code that the folder names, for `trials`.
        workers, device, backend: as for `run`, for `trials`.

    Raises ParibusError where there is no results folder to check, or custom code is not trusted.
    """
    from paribus.engine.execution.backends import find_backend

    at = find_backend(backend)
    with readable(path) as there:
        found = _verify_all(there, trials, folder, trust, workers, device, at)
        return replace(found, findings=tuple(of_kept(one, there, path) for one in found.findings))


def _verify_all(
    path: Path,
    trials: bool,
    folder: str | os.PathLike[str] | None,
    trust: bool,
    workers: int | None,
    device: Device,
    backend: Backend,
) -> Verification:
    """The same of a results folder and of every round of tuning in it."""
    options = trials, folder, trust, workers, device, backend
    found, results = _verify(path, *options)
    checked, findings = list(found.checked), list(found.findings)
    rounds = sorted((path / FOLDER).glob("*/study.json"))
    read = {one.path: one for one in _rounds_of(results)}
    for number, file in enumerate(rounds, start=1):
        of_round, _ = _verify(file.parent, *options, is_tuning=True, read=read.get(file.parent))
        findings += [f"{FOLDER}/{file.parent.name}: {one}" for one in of_round.findings]
        if number == len(rounds):
            checked.append(f"{number} rounds of tuning trials, and what was chosen by them")
    return Verification(found.root, tuple(checked), tuple(findings))


def _rounds_of(results: Results | None) -> list[Results]:
    """The rounds of tuning that were read to verify the choice; none where they are damaged."""
    try:
        return results.tuning_rounds if results else []
    except ParibusError:
        return []  # found, and said, where each is read alone


def _verify(
    path: Path,
    trials: bool,
    folder: str | os.PathLike[str] | None,
    trust: bool,
    workers: int | None,
    device: Device,
    backend: Backend,
    *,
    is_tuning: bool = False,
    read: Results | None = None,
) -> tuple[Verification, Results | None]:
    """The same of one results folder, and its results, where they can be read; `read` is what was
    read of it before. A round of tuning is not timed in turn."""
    results_folder = ResultsFolder(path)
    study = results_folder.read_study(trust=trust)
    if trials:
        require_trust(study)
        if results_folder.is_kept and not is_tuning:
            raise ParibusError(
                "a kept study has no weights to evaluate; verify it without --trials, or train a "
                "trial again (`studies/retrain.py`)"
            )
    trials = trials and not results_folder.is_kept  # a round of tuning has no weights
    root = root_digest(results_folder.path)
    folders = [results_folder.trial(arm, seed) for arm, seed in study.trials]
    finished = [trial for trial in folders if trial.is_finished]
    checked = [f"seals of {len(finished)} of {len(folders)} trials"]
    findings = [
        *_layout(study, results_folder, folders),
        *_seals(results_folder, finished),
        *changed_files(results_folder.path),
    ]
    try:
        results = read or load_results(path, trust=trust)
    except ParibusError as error:
        # What is computed again would be computed from records that are not the sealed ones.
        findings.append(str(error))
        return Verification(root, tuple(checked), tuple(dict.fromkeys(findings))), None
    checked.append("registration")
    findings += _told("registration", lambda: registration_findings(results))
    findings += _told("records", lambda: _complete(results, is_timed=not is_tuning))
    findings += _told("tuning", lambda: tuning_findings(results))
    if not is_tuning:
        findings += _told("test part", lambda: _tested(results))
    findings += _told("parameters", lambda: _parameters(results))
    if results_folder.is_kept:
        checked.append(_no_weights(results))
        findings += _told("kept.json", lambda: _kept_root(results_folder, root))
    of_trials, looked_at = _trials(results, trust=trust)
    findings += of_trials
    checked += looked_at
    if results.finished:
        findings += _told("analysis", lambda: _derived(results, checked))
    if trials and results.finished:
        findings += _repeated(study, results, folder, workers, device, backend, is_tuning=is_tuning)
        checked.append(f"weights, initial values and batches of {len(finished)} trials, repeated")
        if not is_tuning:
            checked.append("token classes, duplicates and leakage, counted again in the text")
    return Verification(root, tuple(checked), tuple(dict.fromkeys(findings))), results


def _trials(results: Results, *, trust: bool) -> tuple[list[str], list[str]]:
    """The findings on each trial by itself, and what was looked at."""
    if has_engine():
        from paribus.engine.execution.workers.lifetime import ending_children

        # Models of own code are built here. Without it nothing of ours starts a process, and what a
        # notebook has started meanwhile is its own.
        with ending_children() if trust else contextlib.nullcontext():
            findings, looked_at = arm_findings(results, trust=trust)
    else:
        findings, looked_at = [], f"no parts and initial values of trials: that takes {INSTALL}"
    whole = [trial for trial in results.finished if MEASUREMENTS not in trial.left_out]
    for trial in whole:
        findings += _told(trial.label, lambda trial=trial: score_findings(trial))
    if not whole and results.finished:
        return findings, [looked_at]
    return findings, [looked_at, f"scores of {len(whole)} trials from blocks and questions"]


def _repeated(
    study: Study,
    results: Results,
    folder: str | os.PathLike[str] | None,
    workers: int | None,
    device: Device,
    backend: Backend,
    *,
    is_tuning: bool,
) -> list[str]:
    """What does not agree where every trial is built, evaluated and drawn again, and the text is
    counted again."""
    from paribus.engine.execution.checks.repeat import describe_again, repeat_trials

    if folder is not None:
        dump, sealed = results.study.model_dump(), results.study.sealed
        study = parse_study(dump, folder=Path(folder), foreign=study.is_foreign, sealed=sealed)
    found = repeat_trials(study, results, workers=workers, device=device, backend=backend)
    return found if is_tuning else found + _told("data", lambda: describe_again(study, results))


def _told(label: str, check: Any) -> list[str]:
    """The findings of a check; that it cannot be made is one."""
    try:
        return list(check())
    except ParibusError as error:
        return [f"{label}: {error}"]


def _layout(study: Study, results: ResultsFolder, trials: list[TrialFolder]) -> Iterator[str]:
    """What lies where no record of this study belongs."""
    homes = {trial.path for trial in trials}
    for found in sorted(results.path.glob("trials/*/*")):
        if found not in homes:
            yield f"{found.relative_to(results.path)} is no trial of the study"
    for trial in trials:
        if not trial.path.is_dir():
            continue
        kept = map(weights_file, study.setting(trial.arm).kept_steps)
        known = BESIDE.union(CANONICAL, kept)
        for found in sorted(trial.path.iterdir()):
            if found.name[0] != "." and found.name not in known:
                yield f"trial {trial.label}: {found.name} is no record"


def _seals(results: ResultsFolder, finished: list[TrialFolder]) -> Iterator[str]:
    for trial in finished:
        try:
            trial.verify()
        except ParibusError as error:
            yield str(error)
    for name in OF_THE_STUDY:
        try:
            if name == TEST_PART:  # without its seal it does not count for nothing
                results.read_opened()
                continue
            sealed = results.has_sealed(name)
        except ParibusError as error:
            yield str(error)
        else:
            if not sealed and is_regular(results.path / name):
                yield f"{name} is not sealed, and counts for nothing"


def _tested(results: Results) -> Iterator[str]:
    """Whether the verdict of a finished study has asked for its sealed test part."""
    if not why_not_tested(results):
        return
    if missing := results.trials.keys() - results.tested.keys():
        some = _some([f"{arm}/seed-{seed}" for arm, seed in sorted(missing)])
        yield f"incomplete: {some} not evaluated on the sealed test part; run the study again"


def _complete(results: Results, *, is_timed: bool) -> Iterator[str]:
    """What a study has once its run has ended: every trial, repeated steps, and speeds."""
    folder = ResultsFolder(results.path)
    timed = folder.timed_trials()
    if results.unfinished:
        missing = [trial.label for trial in results.unfinished]
        lost = [trial.label for trial in results.unfinished if (trial.arm, trial.seed) in timed]
        yield f"incomplete: {_some(missing)} missing, of {results.n_trials} trials"
        if lost:
            yield f"incomplete: {_some(lost)} missing, and was finished when the arms were timed"
        return
    if is_timed and not folder.has_timed(results.trials):
        yield (
            "not timed: every trial is finished, and throughput.parquet does not hold all of them; "
            "`paribus run` with the same study and folder times the arms and trains nothing again"
        )
    custom = [arm for arm in results.study.arms if own_parts(results.study.setting(arm))]
    repeated = folder.read_repeated(custom)
    if lacking := [arm for arm in custom if arm not in repeated]:
        yield f"not repeated: repeated.json does not hold {_some(lacking)}, with custom code"


def _no_weights(results: Results) -> str:
    """What is not there to be checked of a kept study."""
    steps = sorted({step for trial in results.finished for step in trial.sealed_steps})
    earlier = f" (and weights after step {_some([*map(str, steps)])})" if steps else ""
    n_trials = len(results.finished)
    return f"weights of {n_trials} trials{earlier}: none were kept, their digests are"


def _kept_root(folder: ResultsFolder, root: str) -> Iterator[str]:
    """The root digest that a kept study states; its rounds of tuning state none."""
    stated = read_json(folder.path / KEPT).get("root", root)
    if stated != root:
        yield f"kept.json states the root {stated}, and the records give {root}"


def _parameters(results: Results) -> Iterator[str]:
    """Names and shapes of the weights are those of the initial values, in every seed of an arm."""
    first: dict[str, tuple[TrialFolder, Any]] = {}
    for trial in results.finished:
        initial = trial.read_json("initial.json")
        drawn = {name: (about["shape"], about["rule"]) for name, about in initial.items()}
        expected_shapes = {name: tuple(about["shape"]) for name, about in initial.items()}
        is_read = WEIGHTS not in trial.left_out and has_engine()
        if is_read and trial.read_shapes() != expected_shapes:
            yield f"trial {trial.label}: its weights are not the parameters of initial.json"
        other, expected = first.setdefault(trial.arm, (trial, drawn))
        if drawn != expected:
            yield f"trial {trial.label}: its parameters are not those of trial {other.label}"


def _some(labels: list[str]) -> str:
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(labels[:SHOWN]) + more


def derived(results: Results) -> tuple[list[str], Comparison, bool]:
    """analysis.json and verdict.json against the ones that the records give now.

    Returns a line for each thing that does not agree, the comparison of both files, and whether one
    is of an older schema, so that only what both have was compared.
    """
    analysis = analyse(results)
    findings = [analysis.unregistered] if analysis.unregistered else []
    findings += [
        f"control '{control.name}' of {control.arm} is broken: {control.detail}"
        for control in analysis.controls
        if control.state == "broken"
    ]
    fresh = {
        "analysis.json": analysis.to_dict(),
        "verdict.json": {"verdicts": [verdict.to_dict() for verdict in decide(analysis)]},
    }
    found, is_older = Comparison(), False
    sealed = max((read_record(t.path / MANIFEST)[1] for t in results.finished), default=0)
    for name, value in fresh.items():
        if not is_regular(results.path / name):
            continue  # it is written by `analyse` and `decide`, whenever one likes
        there, schema = read_record(results.path / name)
        if schema < sealed:
            findings.append(f"{name} is of an older schema than the trials that it is about")
        now = json.loads(canonical_json(value))
        for one in (there, now):
            one.pop("later_stage", None)  # it moves on while a second stage is trained
            if not schema:
                one.pop("controls", None)  # they asked for other things; today's are told above
        is_older |= not schema
        of_file = compare(there, now, leniency(name, schema, SENTENCES))
        if of_file.differing:
            findings.append(f"{name} is not what the records give: {_some(of_file.differing)}")
        found += of_file
    return findings, found, is_older


def _derived(results: Results, checked: list[str]) -> Iterator[str]:
    """The same; what was compared, and how far apart equal numbers are, is added to `checked`."""
    findings, found, is_older = derived(results)
    yield from findings
    told = "analysis and verdict from the scores"
    if is_older:
        told += " (in what an older schema says)"
    if found.numbers:
        told += f": {found.numbers:,} numbers, largest relative difference {found.largest:.1g}"
    checked.append(told)
