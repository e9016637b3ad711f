"""Trainer `runs`, which reads finished runs from logs and tables instead of training."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.analysis import analyse
from paribus.decision import Verdicts, decide
from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.ledger import unrecorded
from paribus.numbers import plural
from paribus.readers.judge import (
    Better,
    Selection,
    default_score,
    direction,
    group_by_arm,
    make_study,
    read_data,
    score_of,
    seed_of,
    select_runs,
    spent_by,
)
from paribus.readers.port import Run, is_number
from paribus.readers.read import Reading, read, split_label
from paribus.results import Results, TrialFolder, extended, load_results
from paribus.results.curves import LossCurve
from paribus.results.formats import COLUMNS, column
from paribus.results.records import RunsRecord
from paribus.results.registration import read_registration
from paribus.results.store import RUNS, ResultsFolder, results_folder, root_digest
from paribus.runs.queue import Missing
from paribus.runs.trainer_runner import TrainerRunner, content_of, find_trainer, trainer_records
from paribus.statistics import DESCRIPTIVE_BELOW, paired_t
from paribus.statistics.t_test import mean_and_sd
from paribus.study import Study, load_study
from paribus.study.runs import TO_TARGET, declared, section_of
from paribus.study.trainer import RUNS as TRAINER, Declaration, Trial, TrialRecord
from paribus.trainers.run_values import check_values, sizes_of, speeds_of
from paribus.untrusted_io import is_regular

MOST_POINTS = 1_000  # of a curve that is recorded
PART = "it is read with"  # start of the reason why a reader skips a part of a run: it lacks nothing


class Runs:
    """Trainer that reads finished runs from the files listed in a study.

    Args:
        results: results folder.
        reading: runs that are already loaded; if None, the files are read.
        selection: selected runs; if None, they are selected from `reading`.
    """

    def __init__(
        self, results: Path, *, reading: Reading | None = None, selection: Selection | None = None
    ) -> None:
        self.home, self.reading, self.selection = results, reading, selection
        self.excluded = dict[str, int]()
        self.judged = set[str]()  # files with runs that are recorded now

    def declare(self, study: Study) -> Declaration:
        """Declare the study's scores as metrics."""
        scores = section_of(study).scores
        return Declaration(
            tuple(declared(study).values()),
            by_item=frozenset(name for name, score in scores.items() if score.by_item),
            must_be_finite=study.primary.metric,
        )

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Yield each trial with its record, or raise ParibusError if a run is missing."""
        section, score = section_of(study), study.primary.metric
        labels = {arm: study.setting(arm).runs.label for arm in study.arms}
        self.reading = self.reading or read_study(study)
        if self.selection is None:
            grouped = group_by_arm(self.reading, section)
            by_label = {label: grouped.get(label, []) for label in labels.values()}
            lower = declared(study)[score].better == "lower"
            self.selection = select_runs(by_label, section, scores_of(study), lower=lower)
        selected, findings = self.selection, self.selection.findings
        by_trial: dict[Trial, Run] = {}
        for arm, label in labels.items():
            self.excluded |= {arm: selected.excluded[label]} if label in selected.excluded else {}
            own = number_runs(arm, selected.runs[label], study)
            by_trial |= {(arm, seed): run for seed, run in own.items()}
            if surplus := len(selected.runs[label]) - len(own):
                text = f"{plural(surplus, 'run')} of {arm} excluded (seeds not in the study)."
                findings.append(("left_out", text))
        if missing := [trial for trial in trials if trial not in by_trial]:
            reasons = [why for _, why in self.reading.refused]
            why = f"{plural(len(missing), 'run')} of the study not found, such as arm "
            why += f"'{missing[0][0]}', seed {missing[0][1]}; write NaN as the score of a run that"
            raise ParibusError("; ".join([f"{why} crashed", *reasons[:1]]), code="missing")
        every = [by_trial[trial] for trial in trials]
        arms = {arm: [by_trial[trial] for trial in trials if trial[0] == arm] for arm in labels}
        findings += check_values(arms, score, section.at_step, selected.facts)
        self.judged |= {run.path for run in every}
        _require_same_items(study, every)
        needed, speeds = _spent_to_target(study, every), speeds_of(every)
        if needed:
            name, own = next(iter(needed.items()))
            end = min(spent[-1] for run in every if len(spent := spent_by(run, score, name)))
            reached = sum(not is_above for _, is_above in own)
            text = f"{reached} of {plural(len(every), 'run')} reached {score} {section.target:g} "
            text += f"within {end:,g} {name.removesuffix(TO_TARGET)}, the shortest run's budget."
            findings.append(("horizon", text))
        for place, (trial, run) in enumerate(zip(trials, every, strict=True)):
            spent = {name: own[place] for name, own in needed.items()}
            yield trial, _record(study, run, spent, speeds[place])

    def digests(self) -> dict[str, str]:
        """Return the digests of the files read, keyed by path relative to the results folder."""
        return {
            Path(os.path.relpath(path, self.home)).as_posix(): file_digest(Path(path))
            for path in (self.reading.paths if self.reading else ())
            if is_regular(path)
        }

    def describe(
        self, registered: Mapping[str, Any] | None, before: RunsRecord | None, *, is_kept: bool
    ) -> RunsRecord:
        """Return a record of the files that were read, refused or skipped.

        Args:
            registered: registration that preceded the runs, or None.
            before: record of the first stage, whose files are not read again, or None.
            is_kept: whether results are written to disk. If so, the record includes the digests of
                the files, so that later changes can be detected.
        """
        reading, selection = self.reading, self.selection
        assert reading is not None and selection is not None  # as trials were recorded
        exploratory = "nothing was registered before these runs existed"
        if registered is not None:
            moment = datetime.fromisoformat(registered["registered_at"]).timestamp()
            files = filter(os.path.exists, sorted(self.judged))
            early = [path for path in files if os.stat(path).st_mtime < moment]
            text = f"{plural(len(early), 'file')} older than the registration, such as"
            exploratory = f"{text} {early[0]}" if early else ""
        return _runs_record(
            reading,
            selection,
            excluded=self.excluded,
            exploratory=(before.exploratory if before else "") or exploratory,
            sha256=self.digests() if is_kept else {},
        )


def _runs_record(reading: Reading, selection: Selection, **known: Any) -> RunsRecord:
    return RunsRecord(
        files=reading.files,
        refused=[list(pair) for pair in reading.refused],
        skipped=[[path, why] for path, why in reading.skipped if not why.startswith(PART)],
        copies=len(reading.copies),
        copy_of=list(reading.copies[0]) if reading.copies else [],
        notes=list(map(list, [*reading.notes, *selection.findings])),
        **known,
    )


def scores_of(study: Study) -> list[str]:
    """Return the names of the study's scores, starting with the primary score."""
    return list(dict.fromkeys([study.primary.metric, *section_of(study).scores]))


def paths_of(study: Study) -> list[str]:
    """Return the labelled paths in `runs.paths`, resolved against the study's folder."""
    labelled = map(split_label, section_of(study).paths)
    joined = [(label, str(study.folder / path)) for label, path in labelled]
    return [f"{label}={path}" if label else path for label, path in joined]


def read_study(study: Study, paths: Sequence[str] = (), reader: str | None = None) -> Reading:
    """Read the runs in `paths`, which must exist, or in the files that the study lists."""
    section, listed = section_of(study), paths or paths_of(study)
    return read(listed, reader, section=section, scores=scores_of(study), needed=bool(paths))


def number_runs(arm: str, runs: Sequence[Run], study: Study) -> dict[int, Run]:
    """Return an arm's runs, keyed by study seed.

    Runs without seeds are assigned the study's seeds in file order. Other seeds are excluded.
    """
    seeds = [seed_of(run, section_of(study)) for run in runs]
    absent = study.arm_facts(arm).absent
    needed = {str(seed): seed for seed in study.seeds if seed not in absent}
    if not any(seeds) and not study.is_paired:
        seeds = list(needed)
    return {needed[own]: run for run, own in zip(runs, seeds, strict=False) if own in needed}


def _require_same_items(study: Study, runs: Sequence[Run]) -> None:
    """Raise ParibusError if runs were scored on different evaluation items.

    A score compared by item requires items in every run. For other scores, only runs with items
    are checked.
    """
    for name, score in section_of(study).scores.items():
        known = [run for run in runs if score.by_item or run.items.get(name)]
        for run in known:
            first, own = (each.items.get(name, {}).keys() for each in (known[0], run))
            if differ := first ^ own:
                why = f"{run.source} and {known[0].source} have different items for {name}, such as"
                why += f" '{min(differ)}' ({len(own)} and {len(first)}); use the same items"
                raise ParibusError(why, code="incomparable")


def _record(
    study: Study, run: Run, needed: Mapping[str, tuple[float, bool]], speed: float | None
) -> TrialRecord:
    section, primary = section_of(study), study.primary.metric
    scores = {
        name: score_of(run, name, section.at_step) if name in {primary, *run.scores} else math.nan
        for name in section.scores
    }
    by_item = [name for name, score in section.scores.items() if score.by_item]
    curves = {}
    for name in section.scores.keys() & run.curves.keys():  # an even choice of points, to be drawn
        n = len(run.curves[name])
        chosen = np.linspace(0, n - 1, min(n, MOST_POINTS)).round().astype(int)
        curves[name] = [tuple(point) for point in run.curves[name][chosen].tolist()]
    known = {name: v for name, v in run.facts.items() if isinstance(v, str) or math.isfinite(v)}
    censored = [name for name, (_, is_above) in needed.items() if is_above]
    facts = {**known, "source": run.source} | ({"censored": censored} if censored else {})
    seconds = run.facts.get("train_seconds")
    return TrialRecord(
        scores=scores | {name: spent for name, (spent, _) in needed.items()},
        items={name: [value for _, value in sorted(run.items[name].items())] for name in by_item},
        curves=curves,
        seconds=seconds if is_number(seconds) and 0 < seconds < math.inf else None,
        about={"facts": facts} | sizes_of(run) | ({"speed": speed} if speed else {}),
    )


def _spent_to_target(study: Study, runs: Sequence[Run]) -> dict[str, list[tuple[float, bool]]]:
    """Return the budget that each run needed to reach the target, keyed by endpoint.

    Values are (budget, is_censored) pairs. A run is censored if it does not reach the target within
    the smallest budget of all runs, which is then its value.
    """
    score, target = study.primary.metric, section_of(study).target
    if target is None:  # a score of such a name is one of the files
        return {}
    sign = -1 if declared(study)[score].better == "higher" else 1
    needed: dict[str, list[tuple[float, bool]]] = {}
    for name in (metric for metric in study.metrics if metric.endswith(TO_TARGET)):
        spent = [spent_by(run, score, name) for run in runs]
        budget = float(min((own[-1] for own in spent if len(own)), default=math.nan))
        needed[name] = []
        for run, own in zip(runs, spent, strict=True):
            at = math.nan
            if len(own):
                curve = LossCurve(own, own, None, None, sign * run.curves[score][:, 1], 1)
                at = curve.spent_at(sign * target, "tokens")
            needed[name].append((min(at, budget), at > budget))
    return needed


@dataclass(frozen=True)
class MemoryTrial(TrialFolder):
    """Trial whose tables and JSON records are stored only in memory."""

    content: Any = None

    def read_json(self, name: str) -> Any:
        """Return the JSON record called `name`."""
        return self.content[1][name]

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Return the table called `name`, or an empty table if it does not exist."""
        if (kept := self.content[0].get(name)) is None:
            return _empty_table(name)
        return pa.table({key: column(own) for key, own in kept.items() if key in (columns or kept)})


@cache
def _empty_table(name: str) -> pa.Table:
    return pa.table({key: column(np.array([])) for key in COLUMNS[name]})


def judge_runs(
    study: Study,
    results: str | os.PathLike[str] | None = None,
    *,
    reading: Reading | None = None,
    selection: Selection | None = None,
    is_kept: bool = True,
) -> Results:
    """Read and record the finished runs of a study, without starting a worker.

    Args:
        study: the study.
        results: results folder, or None for the default.
        reading: runs that are already loaded; if None, the study's files are read.
        selection: selected runs; if None, they are selected from `reading`.
        is_kept: whether to write the trials to the folder; if False, they stay in memory.

    Raises ParibusError for invalid input, or if the folder contains a verdict on other files.
    """
    folder = results_folder(study, results)
    folder.require_home()
    trainer: Any = find_trainer(study, folder, reading=reading, selection=selection)
    runner = TrainerRunner(None, trainer)
    with folder.lock():
        if not is_kept:
            study, trials = runner.register(runner.open(study, folder), folder), []
            for (arm, seed), record in trainer_records(study, trainer, study.trials):
                trial = folder.trial(arm, seed)
                content = content_of(study, trial, runner.declaration, record)
                trials.append(MemoryTrial(folder.path, arm, seed, content=content))
            record = trainer.describe(None, None, is_kept=False)
            folder.seal(RUNS, record.model_dump(mode="json"))
            records = {(trial.arm, trial.seed): trial.read_json("trial.json") for trial in trials}
            return Results(folder.path, study, tuple(trials), (), records, root_digest(folder.path))
        earlier = read_registration(folder)
        while True:
            try:
                runner.go_through(study, folder)
                break
            except Missing as missing:
                trials = [trial for task in missing.tasks for trial in task.trials]
                runner.run_trials(extended(study, folder), folder, trials)
        before = folder.read_runs()
        if trainer.judged:
            record = trainer.describe(earlier, before, is_kept=True)
            folder.seal(RUNS, record.model_dump(mode="json"))
        elif before is not None:
            known, why = set(before.sha256.values()), folder.runs_changed()
            new = [path for path, digest in trainer.digests().items() if digest not in known]
            if known and new:
                why = why or f"{folder.path} contains a verdict without {new[0]}"
            if why:
                ways = "restore the judged files, or choose another folder with --results"
                raise ParibusError(f"{why}; {ways}", code="changed")
    return load_results(folder.path)


def judge(data: Any, **options: Any) -> Verdicts:
    """Return the verdicts on finished runs, as `paribus judge` does.

    Args:
        data: a table or paths, as `make_study` accepts them.
        options: options of `make_study`.

    Raises ParibusError on bad input.

    Example:
        >>> table = {"arm": ["base", "base", "new", "new"], "loss": [3.1, 3.2, 3.0, 3.1]}
        >>> judge(table, score="loss", baseline="base")[0].word
        'DESCRIPTIVE'
    """
    with judged(*make_study(data, **options)) as results:
        return decide(analyse(results))


@contextmanager
def judged(
    study: Study, reading: Reading, selection: Selection, home: Path | None = None
) -> Iterator[Results]:
    """Judge finished runs and yield the results, stored in `home` or in a temporary folder.

    Nothing is written to the ledger.
    """
    with unrecorded(), TemporaryDirectory(prefix="paribus-") as folder:
        options = {"reading": reading, "selection": selection, "is_kept": home is not None}
        yield judge_runs(study, home or Path(folder, "runs"), **options)


def judge_study(
    name: str, paths: Sequence[str], reader: str | None, results: Path | None
) -> Results | str:
    """Judge a registered study of finished runs, and return its results.

    Returns a message instead if no files match yet.

    Args:
        name: the study file or the results folder.
        paths: files to read, or () for those that the study names.
        reader: the format of the files, or None to detect it.
        results: the results folder, or None for the default.

    Raises ParibusError on bad input.
    """
    is_folder = Path(name).is_dir()
    study = ResultsFolder(Path(name)).read_study() if is_folder else load_study(name)
    if study.trainer != TRAINER:
        raise ParibusError(
            f"{name} uses trainer '{study.trainer}', not 'runs'; run it with `paribus run`, and "
            "judge its results with `paribus report`"
        )
    home = ResultsFolder(Path(name)) if is_folder else results_folder(study, results)
    reading, listed = read_study(study, paths, reader), section_of(study).paths
    if listed and not reading.files and home.read_runs() is None:
        return f"{study.name}: no runs in {', '.join(listed)} yet"
    return judge_runs(study, home.path, reading=reading)


def judge_against_bar(
    paths: Sequence[str],
    scores: Sequence[str],
    bar: float,
    *,
    better: Better | None,
    alpha: float,
    **options: Any,
) -> tuple[dict[str, Any], RunsRecord]:
    """Compare the runs of a single arm with the value `bar`, by Student's one-sample t test.

    Returns the comparison, and the record of the files. `make_study` explains the options.

    `n` counts the runs with a finite score. The others diverged, and rule out BETTER. The SD and
    the interval need at least two finite scores, and p needs five. Raises ParibusError if there are
    several arms, or no finite score.
    """
    reading, section, by_arm = read_data(paths, scores, **options)
    if len(by_arm) > 1:
        arms = ", ".join(by_arm)
        raise ParibusError(
            f"--bar needs a single arm, but there are {len(by_arm)} ({arms}); pass the files of one"
        )
    score = scores[0] if scores else default_score(reading.runs)
    side = better or direction(score)
    selection = select_runs(by_arm, section, [score], lower=side == "lower")
    ((arm, runs),) = selection.runs.items()
    notes = check_values(selection.runs, score, section.at_step, selection.facts)
    selection.findings.extend(notes)
    finite = np.array([score_of(run, score, section.at_step) for run in runs])
    finite = finite[np.isfinite(finite)]
    n, lost = len(finite), len(runs) - len(finite)
    if not (n and math.isfinite(bar) and 0 < alpha < 1):
        raise ParibusError(
            f"--bar {bar} and at least one score must be finite, and --alpha {alpha} in (0, 1)"
        )
    mean, sd = mean_and_sd(finite)
    low = high = p = None
    if n > 1:
        test = paired_t(finite)
        low, high = test.interval(1 - alpha).low, test.interval(1 - alpha).high
        p = test.p_value(bar) if n >= DESCRIPTIVE_BELOW and sd else None
    word, is_better = "DESCRIPTIVE", (mean > bar) == (side == "higher")
    if p is not None:
        is_shown = p <= alpha and not (is_better and lost)
        word = ("BETTER" if is_better else "WORSE") if is_shown else "UNRESOLVED"
    passed = int((finite > bar if side == "higher" else finite < bar).sum())
    against = {"arm": arm, "score": score, "bar": bar, "better": side, "word": word, "n": n}
    against |= {"mean": mean, "sd": sd if n > 1 else None, "low": low, "high": high, "p": p}
    against |= {"alpha": alpha, "passed": passed, "diverged": lost}
    return against, _runs_record(reading, selection, excluded=selection.excluded)
