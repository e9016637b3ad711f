"""The trainer `runs`: it trains nothing, and finds the runs of each arm in logs and tables."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers import Columns, Reading, Run, files_at
from paribus.readers.facts import Fact, Finding, check_facts, list_facts
from paribus.readers.read import Selection
from paribus.readers.select import (
    ROWS,
    final_score,
    group_by_arm,
    read_runs,
    seed_of,
    select_runs,
    set_nested_seed,
    split_label,
    table_columns,
)
from paribus.readers.values import check_units, check_values
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
from paribus.study.runs import TO_TARGET, RunsSection, declared, section_of
from paribus.study.trainer import Declaration, Trial, TrialRecord

MOST_POINTS = 1_000  # of a curve that is recorded
MOST_SEEDS = 5  # that a message names
# Curves of what was spent, by what is asked for.
SPENT = {"tokens": ("tokens",), "seconds": ("train_seconds", "seconds")}


class Runs:
    """Find the runs of a study in the files that it names, or in a `reading` that was made.

    With `is_kept` the results are read again some day, and digests say whether files changed.
    """

    def __init__(
        self, results: Path, *, reading: Reading | None = None, is_kept: bool = True
    ) -> None:
        self.home, self.reading, self.is_kept = results, reading, is_kept
        self.excluded: dict[str, int] = {}
        self.read: list[Reading] = []  # what was read, once it was
        self.findings: list[Finding] = []
        self.replaced: list[str] = []  # seeds in place of those of the study, in words
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
        section, score = section_of(study), study.primary.metric
        by_trial: dict[Trial, Run] = {}
        for arm, runs in self._by_arm(study).items():
            own = number_runs(arm, runs, study)
            by_trial |= {(arm, seed): run for seed, run in own.items()}
            self.replaced += _find_replaced(arm, own, section)
            if surplus := len(runs) - len(own):
                text = f"{plural(surplus, 'run')} of {arm} left out: the study has no such seed."
                self.findings.append(Finding("left_out", text))
        self._require_all(trials, by_trial)
        if study.stages:
            self._added = {by_trial[trial].path for trial in trials}
        arms: dict[str, list[Run]] = {}
        for trial in trials:
            arms.setdefault(trial[0], []).append(by_trial[trial])
        self.findings += check_values(arms, score, section.at_step)
        for name, spec in section.scores.items():
            values = {
                arm: [final_score(r, name, section.at_step) for r in runs if name in r.scores]
                for arm, runs in arms.items()
            }
            self.findings += check_units(values, name, spec.better)
        every = [by_trial[trial] for trial in trials]
        _require_same_items(study, every)
        budgets = _least_budgets(study, every)
        for trial in trials:
            yield trial, _record(study, by_trial[trial], budgets)

    def _require_all(self, trials: Sequence[Trial], by_trial: Mapping[Trial, Run]) -> None:
        missing = [trial for trial in trials if trial not in by_trial]
        if not missing:
            return
        if not by_trial and not any(reading.runs for reading in self.read):
            refused = [why for reading in self.read for _, why in reading.refused]
            paths = some([path for reading in self.read for path in reading.given], 3)
            raise ParibusError(
                refused[0] if refused else f"no runs in {paths} yet; judge them when they are there"
            )
        arm, seed = missing[0]
        counts = Counter(name for name, _ in by_trial)
        reasons = [why for reading in self.read for _, why in reading.refused]
        reasons += [finding.text for finding in self.findings if finding.code == "no_score"]
        raise ParibusError(
            f"{len(missing)} of {plural(len(trials), 'run')} are not there, such as that of arm "
            f"'{arm}' and seed {seed} ({counts[arm]} found of it); a run that crashed is one whose "
            "score is NaN" + "".join(f"; {why}" for why in reasons[:1])
        )

    def about(self, registered: Mapping[str, Any] | None) -> RunsRecord | None:
        """Return what became of the files; None where none was read, as all trials were recorded.

        `registered` is what was registered before; None where nothing was. Files of a first stage,
        which came before the second was registered, are not asked again.
        """
        if not self.read:
            return None
        paths = [path for reading in self.read for path in reading.paths]
        sha256 = digests(paths, self.home) if self.is_kept else {}
        asked = [path for path in paths if self._added is None or path in self._added]
        findings = [
            *(Finding("file", note) for reading in self.read for note in reading.notes),
            *self.findings,
        ]
        return RunsRecord(
            exploratory=_why_exploratory(registered, asked, sha256, self.home, self.replaced),
            sha256=sha256,
            files=sum(reading.files for reading in self.read),
            excluded=self.excluded,
            refused=[list(pair) for reading in self.read for pair in reading.refused],
            skipped=[list(pair) for reading in self.read for pair in reading.skipped],
            copies=sum(len(reading.copies) for reading in self.read),
            copy_of=next((list(pair) for reading in self.read for pair in reading.copies), []),
            notes=[[finding.code, finding.text] for finding in findings],
        )

    def _by_arm(self, study: Study) -> dict[str, list[Run]]:
        """Return the runs of each arm that count. Raises ParibusError."""
        labels = {arm: study.setting(arm).runs.label or arm for arm in study.arms}
        reading = self.reading or _read_files(study)
        selection = reading.selection or _select(study, reading, labels.values())
        self.read, self.findings = [reading], list(selection.findings)
        self.excluded = {
            arm: selection.excluded[label]
            for arm, label in labels.items()
            if label in selection.excluded
        }
        return {arm: selection.runs[label] for arm, label in labels.items()}


def _read_files(study: Study) -> Reading:
    section = section_of(study)
    if not section.paths:
        raise ParibusError(f"study '{study.name}' names no files: state runs.paths")
    columns = columns_of(section, study.metrics)
    reader = section.reader or None
    return read_runs(section.paths, reader, columns, arm=section.arm, home=study.folder)[0]


def _select(study: Study, reading: Reading, labels: Iterable[str]) -> Selection:
    """Return the runs of a registered study that count, by their labels."""
    section, score = section_of(study), study.primary.metric
    set_nested_seed(reading.runs, section)
    by_label = group_by_arm(reading.runs, section)
    by_label = {label: by_label.get(label, []) for label in labels}
    lower = declared(study)[score].better == "lower"
    selection = select_runs(by_label, section, score, lower=lower)
    if all(selection.runs.values()):
        selection.findings += check_runs(selection.runs, section, study.metrics)
    return selection


def columns_of(section: RunsSection, metrics: Iterable[str]) -> Columns:
    """Return what the columns of tables mean to a study."""
    scores = [name for name in metrics if not name.endswith(TO_TARGET)]
    rows = {key: getattr(section, key) for key in ROWS}
    return table_columns(scores, section.arm, section.seed, **rows)


def files_of(study: Study) -> list[str]:
    """Return the files that a study of runs names, as far as they exist."""
    paths = [split_label(path)[1] for path in section_of(study).paths]
    return files_at(os.path.join(study.folder, path) for path in paths)


def facts_of_runs(
    arms: Mapping[str, Sequence[Run]], section: RunsSection, scores: Iterable[str]
) -> list[Fact]:
    """Return the facts of the runs that are compared, with what follows from each."""
    seeds = {arm: [seed_of(run, section) for run in runs] for arm, runs in arms.items()}
    is_replicated = all(
        len(set(own)) == len(own) and ("" not in own or len(own) == 1) for own in seeds.values()
    )
    stated = {condition.partition("=")[0] for condition in section.where}
    every_score = {name for runs in arms.values() for run in runs for name in run.scores}
    rows = [getattr(section, key) for key in ROWS]
    known = {section.arm, section.best_of, *stated, *scores, *every_score, *rows} - {""}
    return list_facts(arms, known, section.seed, is_replicated=is_replicated)


def check_runs(
    arms: Mapping[str, Sequence[Run]], section: RunsSection, scores: Sequence[str]
) -> list[Finding]:
    """Return what the facts of the runs say of comparing them by the first score.

    Raises ParibusError for a sweep, and for scores that cannot be compared.
    """
    return check_facts(arms, facts_of_runs(arms, section, scores), scores[0])


def _why_exploratory(
    registered: Mapping[str, Any] | None,
    paths: Iterable[str],
    sha256: Mapping[str, str],
    home: Path,
    replaced: Sequence[str] = (),
) -> str:
    """Return why a verdict is on runs that were not registered: their files are listed there, or
    older, or they are `replaced` by runs of other seeds. Empty where none is."""
    if registered is None:
        return "nothing was registered before these runs were there"
    moment = datetime.fromisoformat(registered["registered_at"]).timestamp()
    files = [path for path in paths if os.path.exists(path)]
    listed = known_before(sha256, registered.get(FILES, {}))
    early = [
        path for path in files if os.stat(path).st_mtime < moment or name_of(path, home) in listed
    ]
    if not early:
        return "; ".join(replaced)
    was = "was" if len(early) == 1 else "were"
    return (
        f"{len(early)} of {plural(len(files), 'file')} {was} there before the study was "
        f"registered, such as {early[0]}"
    )


def number_runs(arm: str, runs: Sequence[Run], study: Study) -> dict[int, Run]:
    """Return the runs of an arm by seed of the study. Raises ParibusError where two have one seed,
    or, of pairs, where one has none.

    Runs that are no pairs are numbered in the order of their files where their seeds are not those
    of the study. A run of a seed that the study does not have is left out.
    """
    section = section_of(study)
    seeds = [seed_of(run, section) for run in runs]
    for seed, n in Counter(seeds).items():
        if seed and n > 1:
            twins = [
                run.source or "a row" for run, own in zip(runs, seeds, strict=True) if own == seed
            ]
            raise ParibusError(
                f"arm '{arm}' has {n} runs with seed {seed} ({', '.join(twins[:2])}); remove the "
                "duplicates, or name the column that distinguishes the rows: --seed, --step "
                "(training steps) or --item (evaluation items)"
            )
    absent = study.arm_facts(arm).absent
    needed = {str(seed): seed for seed in study.seeds if seed not in absent}
    by_seed = {needed[own]: run for run, own in zip(runs, seeds, strict=True) if own in needed}
    if study.is_paired and "" in seeds:
        raise ParibusError(f"arm '{arm}' has runs without a seed, which pairs need")
    if study.is_paired or len(by_seed) == len(needed):
        return by_seed
    if len(runs) > len(needed):
        raise ParibusError(
            f"arm '{arm}' has {len(runs)} runs, and the study is of {len(needed)}: say which by "
            "their seeds"
        )
    free = [seed for seed in needed.values() if seed not in by_seed]
    spare = [run for run, own in zip(runs, seeds, strict=True) if own not in needed]
    return by_seed | dict(zip(free, spare, strict=False))


def _find_replaced(arm: str, own: Mapping[int, Run], section: RunsSection) -> list[str]:
    """Return that runs of an arm are of other seeds than those of the study, in words."""
    replaced = {s: seed for s, run in own.items() if (seed := seed_of(run, section)) != str(s)}
    replaced = {s: seed for s, seed in replaced.items() if seed}  # without one, nothing is known
    if not replaced:
        return []
    theirs, ours = some([*replaced.values()], MOST_SEEDS), some([*map(str, replaced)], MOST_SEEDS)
    return [f"runs of {arm} are of seeds {theirs} in place of the registered {ours}"]


def _require_same_items(study: Study, runs: Sequence[Run]) -> None:
    """Raise ParibusError where runs have other items of a score: of one that is by item all have
    some, of others those whose files tell."""
    for name, score in section_of(study).scores.items():
        known = [run for run in runs if score.by_item or run.items.get(name)]
        for run in known:
            first, own = (candidate.items.get(name, {}).keys() for candidate in (known[0], run))
            differ = first ^ own
            if not first or differ:
                difference = (
                    f"such as '{min(differ)}' ({len(own)} and {len(first)})"
                    if differ
                    else "as neither has any"
                )
                raise ParibusError(
                    f"{run.source or 'a run'} has other items of {name} than "
                    f"{known[0].source or 'the first'}, {difference}; compare runs on the same "
                    "items"
                )


def _record(study: Study, run: Run, budgets: Mapping[str, float]) -> TrialRecord:
    section = section_of(study)
    scores = {
        name: final_score(run, name, section.at_step)
        if name == study.primary.metric or name in run.scores
        else math.nan
        for name in section.scores
    }
    censored = []
    for name, budget in budgets.items():
        needed = _spent_to_target(study, run, name)
        scores[name] = min(needed, budget)
        censored += [name] if needed > budget else []
    items = {
        name: [value for _, value in sorted(run.items[name].items())]
        for name, score in section.scores.items()
        if score.by_item
    }
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
        curves={name: _thin(run.curves[name]) for name in section.scores if name in run.curves},
        seconds=seconds if isinstance(seconds, float) and 0 < seconds < math.inf else None,
        about={"facts": facts | {"source": run.source} | kept},
    )


def _thin(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return an even choice of the points of a curve, first and last among them, to be drawn."""
    if len(curve) <= MOST_POINTS:
        return list(curve)
    chosen = np.linspace(0, len(curve) - 1, MOST_POINTS).round().astype(int)
    return [curve[place] for place in chosen.tolist()]


def _least_budgets(study: Study, runs: Sequence[Run]) -> dict[str, float]:
    """Return, for each endpoint such as `steps_to_target`, the budget that
    every run had."""
    wanted = [
        endpoint.metric for endpoint in study.endpoints if endpoint.metric.endswith(TO_TARGET)
    ]
    budgets = {}
    for name in wanted:
        ends = [
            spent[-1] for run in runs if len(spent := spent_by(run, study.primary.metric, name))
        ]
        budgets[name] = float(min(ends)) if ends else math.nan
    return budgets


def spent_by(run: Run, score: str, name: str) -> np.ndarray:
    """Return what a run had spent at each point of the curve of `score`; empty where that is not
    known. `name` is such as `steps_to_target`."""
    steps = np.array([step for step, _ in run.curves.get(score, ())], np.float64)
    budget = name.removesuffix(TO_TARGET)
    if budget == "steps":
        return steps
    for curve in SPENT[budget]:
        if curve in run.curves:
            at, spent = np.array(run.curves[curve], np.float64).T
            is_inside = len(steps) and at[0] <= steps[0] and steps[-1] <= at[-1]
            return np.interp(steps, at, spent) if is_inside else np.array([])
    return np.array([])


def _spent_to_target(study: Study, run: Run, name: str) -> float:
    """Return the budget at which a run comes to the target; infinite where it never does."""
    metric, target = study.primary.metric, section_of(study).target
    spent = spent_by(run, metric, name)
    if not len(spent) or target is None:
        return math.nan
    sign = -1 if declared(study)[metric].better == "higher" else 1
    values = sign * np.array([value for _, value in run.curves[metric]], np.float64)
    curve = LossCurve(spent, spent, None, None, values, 1)
    return curve.spent_at(sign * target, "tokens")


def judge_runs(
    study: Study, results: str | os.PathLike[str] | None = None, **options: Any
) -> Results:
    """Read and record the finished runs that a study names; no worker is started.

    `options` are those of `Runs`. Raises ParibusError on bad input.
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
        _record_files(trainer, folder, earlier)
    return load_results(folder.path)


def _record_files(trainer: Any, folder: ResultsFolder, earlier: dict[str, Any] | None) -> None:
    """Record what became of the files that were read; `earlier` is the registration before."""
    outcome = trainer.about(earlier)
    if outcome is not None:
        if before := folder.read_runs():  # of a first stage
            outcome = outcome.model_copy(
                update={"exploratory": before.exploratory or outcome.exploratory}
            )
        folder.seal(RUNS, outcome.model_dump(mode="json"))
        return
    if changed := judged_files.changed(folder):
        raise ParibusError(
            f"{changed}; restore what was judged, or judge what there is now into another folder "
            "with --results"
        )
    record = folder.read_runs()
    if trainer.reading is None or record is None or not record.sha256:
        return
    contents = set(record.sha256.values())
    current = judged_files.digests(trainer.reading.paths, folder.path)
    if unknown := [name for name, digest in current.items() if digest not in contents]:
        raise ParibusError(
            f"{folder.path} holds a verdict that did not include "
            f"{os.path.relpath(folder.path / unknown[0])}; write the new verdict to another folder "
            "with --results"
        )
