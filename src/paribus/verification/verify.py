"""`paribus verify`: seals, registration, layout; scores, analysis and verdict computed again.

Everything that can be derived is derived once more from what it was derived from: scores from
blocks and questions, analysis and verdict from scores, and, where asked, the records of a trial
from its weights, its seed and the text. What does not agree is a finding, one line each.

All of this is about integrity: a folder that agrees with itself may have been made up. See
docs/explanation/security.md.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.analysis import analyse, next_candidates, tried_in, tuning_record
from paribus.analysis.tuning import differing_from, values_of
from paribus.comparison import Comparison, Leniency, agree, compare
from paribus.decision import decide, verdict_record
from paribus.digests import canonical_json
from paribus.engine import INSTALL, has_engine
from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.results import (
    Results,
    ResultsFolder,
    judged_files,
    load_results,
    read_registration,
    why_not_tested,
)
from paribus.results.formats import read_json
from paribus.results.record_format import records_of
from paribus.results.registration import FILES
from paribus.results.store import OF_THE_STUDY, TEST_PART, root_digest
from paribus.results.trial_folder import (
    TrialFolder,
    weights_file,
)
from paribus.study import Study, changed_files, of_arms, require_trust
from paribus.study.trainer import COMMAND, STACKED, require_stacked
from paribus.study.tuning_study import FOLDER
from paribus.untrusted_io import is_regular
from paribus.verification.registered import registration_findings
from paribus.verification.scores import item_findings, score_findings

if TYPE_CHECKING:
    from paribus.engine.execution.backends import Backend
    from paribus.engine.execution.workers.processes import Device

# Keys of analysis.json and verdict.json that hold sentences. Anything else is a number or a code.
SENTENCES = frozenset(
    {
        *("answer", "caveats", "detail", "invalid", "items_about"),
        *("items_why_not", "label", "needs", "pairs_why_not", "reason", "sentence", "text"),
        "tie_breaks",
        *("statement", "unregistered", "untested", "why", "why_not"),
    }
)
# Repeats the trials of results, of tuning or not, and gives what differs.
Repeat = Callable[[Results, bool], list[str]]
SHOWN = 5  # names in a finding: keys in which a file differs, trials, arms, steps
# Beside the sealed records, what a trial's folder may hold.
BESIDE = frozenset({"manifest.json", "timing.json"})


@dataclass(frozen=True)
class Verification:
    """Outcome of `verify`: what was checked, and what does not agree.

    Attributes:
        root: the digest over registrations and manifests (`paribus.results.store`).
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
    """Check the results folder, or the archive, at `path`; nothing is written.

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

    def repeat(results: Results, is_tuning: bool) -> list[str]:
        from paribus.verification.with_engine import repeat_findings

        require_stacked(results.study, "repeating trials")
        about = Path(folder) if folder is not None else None
        return repeat_findings(results, is_tuning, about, workers, device, at)

    return _verify_all(Path(path), repeat if trials else None, trust=trust)


def _verify_all(path: Path, repeat: Repeat | None, *, trust: bool) -> Verification:
    found, results = _verify(path, repeat, trust=trust)
    checked, findings = list(found.checked), list(found.findings)
    records = ResultsFolder(path).records
    rounds = sorted(
        file for form in ("*", "seed-*/*") for file in (records / FOLDER).glob(f"{form}/study.json")
    )
    read = {one.path: one for one in _rounds_of(results)}
    for file in rounds:
        one = read.get(file.parent)
        of_round, _ = _verify(file.parent, repeat, trust=trust, is_tuning=True, read=one)
        where = file.parent.relative_to(records).as_posix()
        findings += [f"{where}: {one}" for one in of_round.findings]
    if rounds:
        checked.append(f"{len(rounds)} rounds of tuning trials, and what was chosen by them")
    return Verification(found.root, tuple(checked), tuple(findings))


def _rounds_of(results: Results | None) -> list[Results]:
    """Return the rounds of tuning that were read to verify the choice; none where they are
    damaged."""
    try:
        return results.tuning_rounds if results else []
    except ParibusError:
        return []  # found, and said, where each is read alone


def _verify(
    path: Path,
    repeat: Repeat | None,
    *,
    trust: bool,
    is_tuning: bool = False,
    read: Results | None = None,
) -> tuple[Verification, Results | None]:
    """Verify one results folder; return its results too, where they can be read.

    Args:
        read: what was read of it before.
        is_tuning: it is a round of tuning, which is not timed in turn.
    """
    results_folder = ResultsFolder(path)
    study = results_folder.read_study(trust=trust)
    if repeat:
        require_trust(study)
        if results_folder.is_archive:
            raise ParibusError(
                f"{path} is an archive, which has no weights to evaluate; verify it without "
                "--trials, or the results folder of the run"
            )
    if is_tuning:  # a round of tuning has no weights
        repeat = None
    root = root_digest(results_folder.path)
    folders = [results_folder.trial(arm, seed) for arm, seed in study.trials]
    finished = [trial for trial in folders if trial.is_finished]
    checked = [f"seals of {len(finished)} of {len(folders)} trials"]
    findings = [
        *_layout(study, results_folder, folders),
        *_seals(study, results_folder, finished),
        *changed_files(results_folder.records),
    ]
    try:
        results = read or load_results(path, trust=trust)
    except ParibusError as error:
        # What is computed again would be computed from records that are not the sealed ones.
        findings.append(str(error))
        return Verification(root, tuple(checked), tuple(dict.fromkeys(findings))), None
    checked.append("registration")
    findings += _told("registration", lambda: registration_findings(results))
    ours = study.trainer == STACKED
    findings += _told("records", lambda: _complete(results, is_timed=ours and not is_tuning))
    findings += _told("tuning", lambda: tuning_findings(results))
    if not is_tuning:
        findings += _told("test part", lambda: _tested(results))
    findings += _told("parameters", lambda: _parameters(results)) if ours else []
    if results_folder.is_archive:
        checked.append(_no_weights(results))
    findings += _told("files", lambda: _files_of_runs(results, checked))
    of_trials, looked_at = _trials(results, trust=trust)
    findings += of_trials
    checked += looked_at
    if results.finished:
        findings += _told("analysis", lambda: _derived(results, checked))
    if repeat and results.finished:
        findings += repeat(results, is_tuning)
        checked.append(f"weights, initial values and batches of {len(finished)} trials, repeated")
        if not is_tuning:
            checked.append("token classes, duplicates and leakage, counted again in the text")
    return Verification(root, tuple(checked), tuple(dict.fromkeys(findings))), results


def _trials(results: Results, *, trust: bool) -> tuple[list[str], list[str]]:
    if results.study.trainer != STACKED:
        if results.study.trainer == COMMAND:
            from paribus.trainers.command.scores import verified

            return verified(results, trust=trust)
        findings = [line for one in results.finished for line in item_findings(one)]
        blocks = records_of(results.study).blocks
        n = sum(is_regular(one.path / blocks) for one in results.finished)
        return findings, [f"means over items of {plural(n, 'trial')}"] if n else []
    if has_engine():
        from paribus.verification.with_engine import arm_findings

        findings, looked_at = arm_findings(results, trust=trust)
    else:
        findings, looked_at = [], f"no parts and initial values of trials: that takes {INSTALL}"
    whole = [trial for trial in results.finished if trial.has("evaluation.parquet")]
    for trial in whole:
        findings += _told(trial.label, lambda trial=trial: score_findings(trial))
    if not whole and results.finished:
        return findings, [looked_at]
    return findings, [looked_at, f"scores of {len(whole)} trials from blocks and questions"]


def _files_of_runs(results: Results, checked: list[str]) -> Iterator[str]:
    """Hold the files that runs of other programs were read from against their digests."""
    record = ResultsFolder(results.path).read_runs()
    if record is None:
        return
    listed = (read_registration(ResultsFolder(results.path)) or {}).get(FILES, {})
    if (known := judged_files.known_before(record.sha256, listed)) and not record.exploratory:
        yield f"runs.json: {known[0]} was there when the study was registered, and it says none"
    if not record.sha256:
        checked.append("no files of runs: their digests were not recorded")
        return
    from paribus.trainers.runs import added_later

    if added := added_later(ResultsFolder(results.path)):
        checked.append(f"no files of runs but those that were judged: {added}")
    found = judged_files.now(record.sha256, results.path)
    checked.append(
        f"{found.same} of {plural(len(record.sha256), 'file')} of runs as they were judged"
        + (f"; {found.gone} not there any more" if found.gone else "")
    )
    for path in found.changed:
        yield f"{path} was changed after it was judged"


def _told(label: str, check: Callable[[], Iterable[str]]) -> list[str]:
    """Return the findings of a check; that it cannot be made is one."""
    try:
        return list(check())
    except ParibusError as error:
        return [f"{label}: {error}"]


def _layout(study: Study, results: ResultsFolder, trials: list[TrialFolder]) -> Iterator[str]:
    homes = {trial.path for trial in trials}
    for found in sorted(results.records.glob("trials/*/*")):
        if found not in homes:
            yield f"{found.relative_to(results.records)} is no trial of the study"
    for trial in trials:
        if not trial.path.is_dir():
            continue
        form = records_of(study)
        kept = map(weights_file, form.kept_steps(study.setting(trial.arm)))
        known = BESIDE.union(form.required, form.possible, kept)
        for found in sorted(trial.path.iterdir()):
            if found.name[0] != "." and found.name not in known:
                yield f"trial {trial.label}: {found.name} is no record"


def _seals(study: Study, results: ResultsFolder, finished: list[TrialFolder]) -> Iterator[str]:
    form = records_of(study)
    for trial in finished:
        try:
            trial.verify(form.required, form.possible)
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
    """Return whether the verdict of a finished study has asked for its sealed test part."""
    if not why_not_tested(results):
        return
    if missing := results.trials.keys() - results.tested.keys():
        named = some([f"{arm}/seed-{seed}" for arm, seed in sorted(missing)], SHOWN)
        yield f"incomplete: {named} not evaluated on the sealed test part; run the study again"


def _complete(results: Results, *, is_timed: bool) -> Iterator[str]:
    """Yield what a study has once its run has ended: every trial, repeated steps, and speeds."""
    folder = ResultsFolder(results.path)
    timed = folder.timed_trials()
    if results.unfinished:
        missing = [trial.label for trial in results.unfinished]
        lost = [trial.label for trial in results.unfinished if (trial.arm, trial.seed) in timed]
        yield f"incomplete: {some(missing, SHOWN)} missing, of {results.n_trials} trials"
        if lost:
            named = some(lost, SHOWN)
            yield f"incomplete: {named} missing, and was finished when the arms were timed"
        return
    if is_timed and not folder.has_timed(results.trials):
        yield (
            "not timed: every trial is finished, and throughput.parquet does not hold all of them; "
            "`paribus run` with the same study and folder times the arms and trains nothing again"
        )
    custom = [arm for arm in results.study.arms if results.study.setting(arm).own_parts]
    repeated = folder.read_repeated(custom)
    if lacking := [arm for arm in custom if arm not in repeated]:
        yield f"not repeated: repeated.json does not hold {some(lacking, SHOWN)}, with custom code"


def _no_weights(results: Results) -> str:
    steps = sorted({step for trial in results.finished for step in trial.sealed_steps})
    earlier = f" (and weights after step {some([*map(str, steps)], SHOWN)})" if steps else ""
    n_trials = len(results.finished)
    return f"weights of {n_trials} trials{earlier}: not in an archive, which has their digests"


def tuning_findings(results: Results) -> Iterator[str]:
    """Yield what tuning.json or the study says otherwise than the tuning trials do."""
    study, folder = results.study, ResultsFolder(results.path)
    home, rounds = folder.records / FOLDER, {one.path for one in results.tuning_rounds}
    around = {path.parent for path in rounds} - {home}
    for found in sorted([*home.glob("*"), *(one for there in around for one in there.iterdir())]):
        if found not in rounds | around:
            yield f"{found.relative_to(folder.records)} is no round of tuning trials"
    record = folder.read_tuning()
    if study.tuning is None:
        if rounds or record:
            yield "there are tuning trials, and the study has no [tuning]"
        return
    if study.tunes_anew:
        needed, told = results.arms_by_seed, record.get("by_seed", {})
        if unknown := sorted(told.keys() - {str(seed) for seed in needed}):
            yield f"tuning.json has a choice for seed {unknown[0]}, which has no trials"
        for seed, arms in needed.items():
            one, said = of_arms(study.at(seed), arms), told.get(str(seed), {})
            for line in _choice_findings(one, results.rounds_of(seed), said, seed):
                yield f"seed {seed}: {line}"
        return
    yield from _choice_findings(study, results.rounds_of(None), record)


def _choice_findings(
    study: Study, rounds: list[Results], record: dict[str, Any], seed: int | None = None
) -> Iterator[str]:
    assert study.tuning is not None
    tried = tried_in(study, rounds)
    if tried is None or next_candidates(study, tried):
        yield "incomplete: the tuning is not finished"
        return
    fresh = tuning_record(study, rounds, seed)
    if differing := differing_from(record, fresh):
        yield f"tuning.json is not what the tuning trials give: {', '.join(differing[:5])}"
    if not agree(study.tuning.chosen, values_of(fresh)):
        yield "study.json has other values for its arms than the tuning trials choose"


def _parameters(results: Results) -> Iterator[str]:
    first: dict[str, tuple[TrialFolder, Any]] = {}
    for trial in results.finished:
        initial = trial.read_json("initial.json")
        drawn = {name: (about["shape"], about["rule"]) for name, about in initial.items()}
        expected_shapes = {name: tuple(about["shape"]) for name, about in initial.items()}
        is_read = trial.has_weights and has_engine()
        if is_read and trial.read_shapes() != expected_shapes:
            yield f"trial {trial.label}: its weights are not the parameters of initial.json"
        other, expected = first.setdefault(trial.arm, (trial, drawn))
        if drawn != expected:
            yield f"trial {trial.label}: its parameters are not those of trial {other.label}"


def derived(results: Results) -> tuple[list[str], Comparison]:
    """Compare analysis.json and verdict.json with the ones that the records give now.

    Returns a line for each thing that does not agree, and the comparison of both files.
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
        "verdict.json": verdict_record(analysis, decide(analysis)),
    }
    found = Comparison()
    for name, value in fresh.items():
        if not is_regular(results.path / name):
            continue  # `report` writes it, at any time
        there = read_json(results.path / name)
        now = json.loads(canonical_json(value))
        for one in (there, now):
            one.pop("later_stage", None)  # it moves on while a second stage is trained
        of_file = compare(there, now, Leniency(SENTENCES))
        if of_file.differing:
            keys = some(of_file.differing, SHOWN)
            findings.append(f"{name} is not what the records give: {keys}")
        found += of_file
    return findings, found


def _derived(results: Results, checked: list[str]) -> Iterator[str]:
    """Yield the findings of `derived`; what was compared, and how far apart, is added to
    `checked`."""
    findings, found = derived(results)
    yield from findings
    states = Counter(control.state for control in results.controls)
    if states:
        told = ", ".join(f"{n} {state}" for state, n in states.items())
        checked.append(f"{states.total()} controls from the records of both trials: {told}")
    told = "analysis and verdict from the scores"
    if found.numbers:
        told += f": {found.numbers:,} numbers, largest relative difference {found.largest:.1g}"
    checked.append(told)
