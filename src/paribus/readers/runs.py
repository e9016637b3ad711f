"""The trainer `runs`: it trains nothing, and finds the runs of each arm in logs and tables."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers.facts import Finding, check_values
from paribus.readers.port import Run
from paribus.readers.read import Reading, files_at
from paribus.readers.select import (
    Selection,
    group_by_arm,
    join_label,
    read_runs,
    score_of,
    seed_of,
    select_runs,
)
from paribus.results import Results, ResultsFolder, extended, judged_files, load_results
from paribus.results.curves import LossCurve
from paribus.results.judged_files import digests, known_before, name_of
from paribus.results.records import RunsRecord
from paribus.results.registration import FILES, read_registration
from paribus.results.store import RUNS
from paribus.runs.queue import Missing
from paribus.runs.records import find_trainer
from paribus.runs.run import results_folder
from paribus.runs.runners import TrainerRunner
from paribus.study import Study
from paribus.study.runs import TO_TARGET, declared, section_of
from paribus.study.trainer import Declaration, Trial, TrialRecord

MOST_POINTS = 1_000  # of a curve that is recorded
# Curves of what was spent, by what is asked for.
SPENT = {"tokens": ("tokens",), "seconds": ("train_seconds", "seconds")}


class Runs:
    """Find the runs of a study in the files that it names, or in a `reading` and a `selection` that
    were made.

    With `is_kept` the results are read again some day, and digests say whether files changed.
    """

    def __init__(
        self,
        results: Path,
        *,
        reading: Reading | None = None,
        selection: Selection | None = None,
        is_kept: bool = True,
    ) -> None:
        self.home, self.reading, self.is_kept = results, reading, is_kept
        self.selection = selection
        self.has_run, self.excluded = False, dict[str, int]()
        self._added: set[str] | None = None  # files with runs of a second stage

    def declare(self, study: Study) -> Declaration:
        """Return the scores of the study."""
        scores = section_of(study).scores
        return Declaration(
            tuple(declared(study).values()),
            by_item=frozenset(name for name, score in scores.items() if score.by_item),
            must_be_finite=study.primary.metric,
        )

    def existing_files(self, study: Study) -> dict[str, Any]:
        """Return the digests of the files that the study names, as far as they exist."""
        return {FILES: digests(files_of(study), self.home)}

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Yield the record of each trial. Raises ParibusError where a run is missing."""
        section, score, self.has_run = section_of(study), study.primary.metric, True
        labels = {arm: study.setting(arm).runs.label or arm for arm in study.arms}
        self.reading = self.reading or _read_files(study)
        if (selection := self.selection) is None:
            grouped = group_by_arm(self.reading.runs, section)
            by_label = {label: grouped.get(label, []) for label in labels.values()}
            lower = declared(study)[score].better == "lower"
            selection = select_runs(by_label, section, scores_of(study), lower=lower)
            self.selection = selection
        by_trial: dict[Trial, Run] = {}
        for arm, label in labels.items():
            if label in selection.excluded:
                self.excluded[arm] = selection.excluded[label]
            own = number_runs(arm, selection.runs[label], study)
            by_trial |= {(arm, seed): run for seed, run in own.items()}
            if surplus := len(selection.runs[label]) - len(own):
                text = f"{plural(surplus, 'run')} of {arm} left out: the study has no such seed."
                selection.findings.append(Finding("left_out", text))
        self._require_all(study, trials, by_trial)
        if study.stages:
            self._added = {by_trial[trial].path for trial in trials}
        arms: dict[str, list[Run]] = {}
        for trial in trials:
            arms.setdefault(trial[0], []).append(by_trial[trial])
        selection.findings += check_values(arms, score, section.at_step)
        every = [by_trial[trial] for trial in trials]
        _require_same_items(study, every)
        needed = _spent_to_target(study, every)
        for place, trial in enumerate(trials):
            spent = {name: own[place] for name, own in needed.items()}
            yield trial, _record(study, by_trial[trial], spent)

    def _require_all(
        self, study: Study, trials: Sequence[Trial], by_trial: Mapping[Trial, Run]
    ) -> None:
        missing = [trial for trial in trials if trial not in by_trial]
        if not missing or self.reading is None or self.selection is None:
            return
        reasons = [why for _, why in self.reading.refused]
        if not self.reading.runs:
            paths = some(section_of(study).paths, 3)
            none = f"no runs in {paths} yet; judge them when they are there"
            raise ParibusError(reasons[0] if reasons else none, code="missing")
        arm, seed = missing[0]
        n = sum(name == arm for name, _ in by_trial)
        reasons += [
            finding.text for finding in self.selection.findings if finding.code == "no_score"
        ]
        raise ParibusError(
            f"{len(missing)} of {plural(len(trials), 'run')} are not there, such as that of arm "
            f"'{arm}' and seed {seed} ({n} found of it); a run that crashed is one whose score is "
            "NaN" + "".join(f"; {why}" for why in reasons[:1]),
            code="missing",
        )

    def about(self, registered: Mapping[str, Any] | None) -> RunsRecord | None:
        """Return what became of the files; None where all trials were recorded before.

        `registered` is what was registered before; None where nothing was. Files of a first stage,
        which came before the second was registered, are not asked again.
        """
        if (reading := self.reading) is None or self.selection is None or not self.has_run:
            return None
        sha256 = digests(reading.paths, self.home) if self.is_kept else {}
        asked = [path for path in reading.paths if self._added is None or path in self._added]
        findings = [Finding("file", note) for note in reading.notes] + self.selection.findings
        return RunsRecord(
            exploratory=self._why_exploratory(registered, asked, sha256),
            sha256=sha256,
            files=reading.files,
            excluded=self.excluded,
            refused=[list(pair) for pair in reading.refused],
            skipped=[list(pair) for pair in reading.skipped],
            copies=len(reading.copies),
            copy_of=list(reading.copies[0]) if reading.copies else [],
            notes=[[finding.code, finding.text] for finding in findings],
        )

    def _why_exploratory(
        self,
        registered: Mapping[str, Any] | None,
        paths: Iterable[str],
        sha256: Mapping[str, str],
    ) -> str:
        """Return why a verdict is on runs that were not registered: their files are listed there,
        or older. Empty where none is."""
        if registered is None:
            return "nothing was registered before these runs were there"
        moment = datetime.fromisoformat(registered["registered_at"]).timestamp()
        files = [path for path in paths if os.path.exists(path)]
        listed = known_before(sha256, registered.get(FILES, {}))
        early = [
            path
            for path in files
            if os.stat(path).st_mtime < moment or name_of(path, self.home) in listed
        ]
        if not early:
            return ""
        return (
            f"{len(early)} of {plural(len(files), 'file')} {'was' if len(early) == 1 else 'were'} "
            f"there before the study was registered, such as {early[0]}"
        )


def _read_files(study: Study) -> Reading:
    section = section_of(study)
    if not section.paths:
        raise ParibusError(f"study '{study.name}' names no files: state runs.paths")
    return read_runs(section.paths, section, scores_of(study), home=study.folder)


def scores_of(study: Study) -> list[str]:
    """Return the scores that the files of a study have, the one that decides first."""
    primary = study.primary.metric
    return [primary, *(name for name in section_of(study).scores if name != primary)]


def files_of(study: Study) -> list[str]:
    """Return the files that a study of runs names, as far as they exist."""
    return files_at(join_label(study.folder, path) for path in section_of(study).paths)


def number_runs(arm: str, runs: Sequence[Run], study: Study) -> dict[int, Run]:
    """Return the runs of an arm by seed of the study. Raises ParibusError where two have one seed.

    Runs without any seed are numbered in the order of their files. A run of a seed that the study
    does not have is left out.
    """
    seeds = [seed_of(run, section_of(study)) for run in runs]
    absent = study.arm_facts(arm).absent
    needed = {str(seed): seed for seed in study.seeds if seed not in absent}
    if not any(seeds) and not study.is_paired:
        seeds = list(needed)
    return {needed[own]: run for run, own in zip(runs, seeds, strict=False) if own in needed}


def _require_same_items(study: Study, runs: Sequence[Run]) -> None:
    """Raise ParibusError where runs have other items of a score: of one that is by item all have
    some, of others those whose files tell."""
    for name, score in section_of(study).scores.items():
        known = [run for run in runs if score.by_item or run.items.get(name)]
        for run in known:
            first, own = (candidate.items.get(name, {}).keys() for candidate in (known[0], run))
            if differ := first ^ own:
                raise ParibusError(
                    f"{run.name} has other items of {name} than {known[0].name}, such as "
                    f"'{min(differ)}' ({len(own)} and {len(first)}); compare runs on the same "
                    "items",
                    code="incomparable",
                )
            if not first:
                raise ParibusError(f"{run.name} has no items of {name}; name their column")


def _record(study: Study, run: Run, needed: Mapping[str, tuple[float, bool]]) -> TrialRecord:
    section = section_of(study)
    scores = {
        name: score_of(run, name, section.at_step)
        if name == study.primary.metric or name in run.scores
        else math.nan
        for name in section.scores
    }
    scores |= {name: spent for name, (spent, _) in needed.items()}
    censored = [name for name, (_, is_above) in needed.items() if is_above]
    items = {
        name: [value for _, value in sorted(run.items[name].items())]
        for name, score in section.scores.items()
        if score.by_item
    }
    curves = {}
    for name in section.scores.keys() & run.curves.keys():  # an even choice of points, to be drawn
        n = len(run.curves[name])
        chosen = np.linspace(0, n - 1, min(n, MOST_POINTS)).round().astype(int)
        curves[name] = [tuple(point) for point in run.curves[name][chosen].tolist()]
    seconds = run.facts.get("train_seconds")
    facts: dict[str, Any] = {
        name: value
        for name, value in run.facts.items()
        if isinstance(value, str) or math.isfinite(value)
    }
    kept = {"censored": censored} if censored else {}
    return TrialRecord(
        scores=scores,
        items=items,
        curves=curves,
        seconds=seconds if isinstance(seconds, float) and 0 < seconds < math.inf else None,
        about={"facts": facts | {"source": run.source} | kept},
    )


def spent_by(run: Run, score: str, name: str) -> np.ndarray:
    """Return what a run had spent at each point of the curve of `score`; empty where that is not
    known. `name` is such as `steps_to_target`."""
    if score not in run.curves:
        return np.array([])
    steps, budget = run.curves[score][:, 0], name.removesuffix(TO_TARGET)
    if budget == "steps":
        return steps
    for curve in SPENT[budget]:
        if curve in run.curves:
            at, spent = run.curves[curve].T
            is_inside = at[0] <= steps[0] and steps[-1] <= at[-1]
            return np.interp(steps, at, spent) if is_inside else np.array([])
    return np.array([])


def _spent_to_target(study: Study, runs: Sequence[Run]) -> dict[str, list[tuple[float, bool]]]:
    """Return, for each endpoint such as `steps_to_target`, at which budget each run came to the
    target, and whether it did not: then it is the budget that every run had."""
    score, target = study.primary.metric, section_of(study).target
    sign = -1 if declared(study)[score].better == "higher" else 1
    needed: dict[str, list[tuple[float, bool]]] = {}
    for name in (metric for metric in study.metrics if metric.endswith(TO_TARGET)):
        spent = [spent_by(run, score, name) for run in runs]
        budget = float(min((own[-1] for own in spent if len(own)), default=math.nan))
        needed[name] = []
        for run, own in zip(runs, spent, strict=True):
            at = math.nan
            if len(own) and target is not None:
                values = sign * run.curves[score][:, 1]
                curve = LossCurve(own, own, None, None, values, 1)
                at = curve.spent_at(sign * target, "tokens")
            needed[name].append((min(at, budget), at > budget))
    return needed


def judge_runs(
    study: Study, results: str | os.PathLike[str] | None = None, **options: Any
) -> Results:
    """Read and record the finished runs that a study names; no worker is started.

    `options` are those of `Runs`. Raises ParibusError on bad input, and where the folder holds the
    verdict on other files.
    """
    folder = results_folder(study, results)
    folder.require_home()
    trainer: Any = find_trainer(study, folder, **options)
    with folder.lock():
        runner = TrainerRunner(None, trainer)
        earlier = read_registration(folder)
        while True:
            try:
                runner.go_through(study, folder)
                break
            except Missing as missing:
                trials = [trial for task in missing.tasks for trial in task.trials]
                home = ResultsFolder(Path(missing.tasks[0].home))
                runner.run_trials(extended(study, folder), home, trials)
        before, record = folder.read_runs(), trainer.about(earlier)
        if record is not None:
            if before is not None:  # of a first stage
                exploratory = before.exploratory or record.exploratory
                record = record.model_copy(update={"exploratory": exploratory})
            folder.seal(RUNS, record.model_dump(mode="json"))
        elif changed := judged_files.changed(folder):
            raise ParibusError(
                f"{changed}; restore what was judged, or judge what there is now into another "
                "folder with --results",
                code="changed",
            )
        elif trainer.reading is not None and before is not None and before.sha256:
            current = digests(trainer.reading.paths, folder.path)
            for name in [
                n for n, sha256 in current.items() if sha256 not in before.sha256.values()
            ]:
                raise ParibusError(
                    f"{folder.path} holds a verdict that did not include "
                    f"{os.path.relpath(folder.path / name)}; write the new verdict to another "
                    "folder with --results",
                    code="different",
                )
    return load_results(folder.path)
