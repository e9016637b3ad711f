"""The trainer `runs`: it trains nothing, and finds the runs of each arm in logs and tables."""

from __future__ import annotations

import contextlib
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePath
from statistics import median
from typing import Any

import numpy as np

from paribus.errors import ParibusError, nearest
from paribus.numbers import plural, some
from paribus.readers import (
    Columns,
    Reading,
    Run,
    counted_once,
    files_at,
    is_known,
    read,
    without_shared_seed,
)
from paribus.readers.port import EMPTY, NOT_FINISHED, Curve
from paribus.readers.read import LEAST_OF_A_CURVE
from paribus.results import ResultsFolder
from paribus.results.curves import LossCurve
from paribus.results.judged_files import digests, given_now, known_before, name_of, not_judged
from paribus.results.records import RunsRecord
from paribus.results.registration import FILES
from paribus.study import Study
from paribus.study.runs import TO_TARGET, RunsSection, declared, section_of
from paribus.study.trainer import Declaration, Trial, TrialRecord

FROM_PATH = ("folder", "name")  # of a file, that may name the arm
OF_A_RUN = re.compile(r"checkpoint-\d+|seed[ _=-]?\d+", re.IGNORECASE)  # folders, and of no arm
# What stands in the place of a seed where a row sums up others.
OF_SEVERAL = {"all", "average", "avg", "count", "max", "mean", "median", "min", "overall"}
OF_SEVERAL |= {"sd", "se", "sem", "std", "stderr", "sum", "total", "var"}
NAMES_OF_ROWS = ("", "Unnamed: 0", "index", "Name", "name", "run")  # columns, as pandas writes
# Facts that say what a score is of, where logs have them.
EVALUATED = ("unit", "workload", "eval_set", "dataset", "n_shot")
PROGRAM = {"source_digest": "programs", "commit": "commits"}  # facts that say which one ran
MOST_POINTS = 1_000  # of a curve that is recorded
PROGRAMS_TOLD, ARMS_TOLD = 3, 4
SEEDS_TOLD = 5
MOST_NAMED = 20  # runs in an error
PER_CENT = (50, 200)  # times the same as a share
PER_CENT_MOST = 100
TABLES = ("", "table")  # readers of tables, in memory or in a file
FINE_DIGITS = 4  # of a value; of fewer, equal ones are no surprise
# Curves of what was spent, by what is asked for.
SPENT = {"tokens": ("tokens",), "seconds": ("train_seconds", "seconds")}


class Runs:
    """Finds the runs of a study in the files that it names, or in a `reading` that was made.

    With `is_kept` the results are read again some day, and digests say whether files changed.
    """

    def __init__(
        self, results: Path, *, reading: Reading | None = None, is_kept: bool = True
    ) -> None:
        self.home, self.reading, self.is_kept = results, reading, is_kept
        self.excluded: dict[str, int] = {}
        self.missing: list[str] = []  # notes on runs without a score
        self.read: list[Reading] = []  # what was read, once it was
        self.notes: list[str] = []
        self.replaced: list[str] = []  # seeds in place of those of the study, in words
        self._readings: dict[RunsSection, Reading] = {}
        self._added: set[str] | None = None  # files with runs of a second stage

    def declare(self, study: Study) -> Declaration:
        """Return the scores of the study."""
        scores = section_of(study).scores
        return Declaration(
            tuple(declared(study).values()),
            by_item=frozenset(name for name, score in scores.items() if score.by_item),
            must_be_finite=study.primary.metric,
        )

    def there(self, study: Study) -> dict[str, Any]:
        """Return the digests of the files that the study names, as far as they are there."""
        sections = [section_of(study), *(study.setting(arm).runs for arm in study.arms)]
        paths = [os.path.join(study.folder, path) for one in sections for path in one.paths]
        return {FILES: digests(files_at(dict.fromkeys(paths)), self.home)}

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Yield the record of each trial. Raises ParibusError where a run is not there."""
        found: dict[Trial, Run] = {}
        for arm, runs in self._by_arm(study).items():
            mine = numbered(arm, runs, study)
            found |= {(arm, seed): run for seed, run in mine.items()}
            self.replaced += _replaced(arm, mine, section_of(study))
            if more := len(runs) - len(mine):
                told = f"{plural(more, 'run')} of {arm}"
                self.notes.append(f"{told} of seeds that the study does not have left out.")
        if missing := [trial for trial in trials if trial not in found]:
            arm, seed = missing[0]
            there = Counter(name for name, _ in found)
            raise ParibusError(
                f"{len(missing)} of {plural(len(trials), 'run')} are not there, such as that of "
                f"arm '{arm}' and seed {seed} ({there[arm]} found of it); a run that crashed is "
                "one whose score is NaN"
                + "".join(f"; {why}" for why in [*self._refused(), *self.missing][:1])
            )
        self.notes += self.missing
        if study.stages:
            self._added = {found[trial].path for trial in trials}
        self.notes += _stopped_early({trial: found[trial] for trial in trials})
        self.notes += _in_other_units(study, {trial: found[trial] for trial in trials})
        self.notes += _several_at_a_step(study, {trial: found[trial] for trial in trials})
        self.notes += _empty_at_the_end(study, {trial: found[trial] for trial in trials})
        self.notes += _begin_alike(study, {trial: found[trial] for trial in trials})
        self.notes += _of_several_programs({trial: found[trial] for trial in trials})
        self.notes += _of_other_lengths(study, {trial: found[trial] for trial in trials})
        self.notes += _of_cut_logs({trial: found[trial] for trial in trials})
        _require_curves(study, [found[trial] for trial in trials])
        _require_one_evaluation(study, [found[trial] for trial in trials])
        _require_same_items(study, [found[trial] for trial in trials])
        budgets = _budgets(study, [found[trial] for trial in trials])
        for trial in trials:
            yield trial, _record(study, found[trial], budgets)

    def about(self, registered: Mapping[str, Any] | None) -> RunsRecord | None:
        """Return what became of the files; None where none was read, as all trials were there.

        `registered` is what was registered before; None where nothing was. Files of a first stage,
        which came before the second was registered, are not asked again.
        """
        if not self.read:
            return None
        paths = [path for one in self.read for path in one.paths]
        sha256 = digests(paths, self.home) if self.is_kept else {}
        asked = [path for path in paths if self._added is None or path in self._added]
        kept = self.read if self.is_kept else []
        return RunsRecord(
            exploratory=_why_exploratory(registered, asked, sha256, self.home, self.replaced),
            sha256=sha256,
            given=[name_of(path, self.home) for one in kept for path in one.given],
            unread=[
                name_of(path, self.home) for one in kept for path, _ in (*one.refused, *one.skipped)
            ],
            files=sum(one.files for one in self.read),
            excluded=self.excluded,
            refused=[list(pair) for one in self.read for pair in one.refused],
            skipped=[list(pair) for one in self.read for pair in one.skipped],
            copies=sum(len(one.copies) for one in self.read),
            copy_of=next((list(pair) for one in self.read for pair in one.copies), []),
            notes=[
                *_gone(registered, self.home),
                *(note for one in self.read for note in one.notes),
                *self.notes,
            ],
        )

    def _refused(self) -> list[str]:
        """Return why files could not be read."""
        return [why for one in self.read for _, why in one.refused]

    def _by_arm(self, study: Study) -> dict[str, list[Run]]:
        """Return the runs of each arm. Raises ParibusError."""
        shared = section_of(study)
        settings = {arm: study.setting(arm).runs for arm in study.arms}
        labelled = {one.label or arm: arm for arm, one in settings.items()}
        found: dict[str, list[Run]] = {arm: [] for arm in study.arms}
        by_path = {} if self.reading else self._own_paths(settings, shared)
        for arm, section in by_path.items():
            found[arm] = self._read(study, section).runs
        if by_path.keys() != found.keys():
            reading = self.reading or self._read(study, shared)
            if self.reading:
                self.read.append(self.reading)
            for label, runs in labelled_runs(reading.runs, shared).items():
                if (arm := labelled.get(label)) in found and arm not in by_path:
                    found[arm] += runs
        whole = without_missing(found, study.primary.metric)
        self.missing += _missing_scores(found, whole, study.primary.metric)
        found = whole
        require_at_step(found, study.primary.metric, shared.at_step)
        kept = without_crashed(found, study.primary.metric, shared)
        self.excluded |= {
            arm: lost for arm, runs in found.items() if (lost := len(runs) - len(kept[arm]))
        }
        return kept

    def _own_paths(
        self, settings: Mapping[str, RunsSection], shared: RunsSection
    ) -> dict[str, RunsSection]:
        return {arm: one for arm, one in settings.items() if one.paths != shared.paths}

    def _read(self, study: Study, section: RunsSection) -> Reading:
        if (read_before := self._readings.get(section)) is not None:
            self.read.append(read_before)
            return read_before
        if not section.paths:
            raise ParibusError(f"study '{study.name}' names no files: state runs.paths")
        paths = [os.path.join(study.folder, path) for path in section.paths]
        columns = columns_of(section, study.metrics)
        reading = read(paths, section.reader or None, columns=columns, once=False)
        once = counted_once(reading.runs, lambda run: arm_of(run, section))
        reading.runs, reading.copies = once
        without_shared_seed(reading.runs, lambda run: arm_of(run, section))
        self.read.append(reading)
        self._readings[section] = reading
        return reading


def columns_of(section: RunsSection, metrics: Iterable[str]) -> Columns:
    """Return what the columns of tables mean to a study."""
    path = section.arm in FROM_PATH
    scores = tuple(name for name in metrics if not name.endswith(TO_TARGET))
    arm = "" if path else section.arm
    found = Columns(
        () if section.metric else scores,
        arm,
        section.seed,
        step=section.step,
        item=section.item,
        metric=section.metric,
        value=section.value,
    )
    return by_file(found) if path else found


def by_file(columns: Columns) -> Columns:
    """Return the same of tables whose arms the files name: each is a run, if no column called so
    has seeds."""
    if columns.seed != "seed":
        return columns
    return replace(columns, seed="", seed_if_any="seed")


def added_later(folder: ResultsFolder) -> str:
    """Return which files of runs lie beside those that were judged, and were not looked at then, in
    words; empty where none does."""
    record = folder.read_runs()
    if record is None or not record.given:
        return ""
    there = files_at(given_now(record, folder.path))
    new = [file for file in not_judged(record, there, folder.path) if is_known(file)]
    if not new:
        return ""
    were = "file was" if len(new) == 1 else "files were"
    return f"{len(new)} {were} added after {folder.path} was judged, such as {new[0]}"


def require_judged(folder: ResultsFolder, reading: Reading) -> None:
    """Raise ParibusError where files are given that are not those of the verdict in `folder`."""
    record = folder.read_runs()
    if record is None or not record.sha256:
        return
    contents = set(record.sha256.values())
    found = digests(reading.paths, folder.path)
    if odd := [name for name, digest in found.items() if digest not in contents]:
        raise ParibusError(
            f"{os.path.relpath(folder.path / odd[0])} is not among the files that {folder.path} "
            "is the verdict on; judge it into another folder with --results"
        )


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
    found = [
        path for path in files if os.stat(path).st_mtime < moment or name_of(path, home) in listed
    ]
    if not found:
        return "; ".join(replaced)
    was = "was" if len(found) == 1 else "were"
    return (
        f"{len(found)} of {plural(len(files), 'file')} {was} there before the study was "
        f"registered, such as {found[0]}"
    )


def _gone(registered: Mapping[str, Any] | None, home: Path) -> list[str]:
    """Say which files that were there at registration are not there any more: under another name
    and with other bytes they may be among those that are judged."""
    listed = (registered or {}).get(FILES, {})
    gone = [name for name in listed if not os.path.lexists(os.path.join(home, name))]
    if not gone:
        return []
    one = "is" if len(gone) == 1 else "are"
    return [
        f"{len(gone)} of {plural(len(listed), 'file')} that lay there at registration {one} not "
        f"there any more, such as {os.path.relpath(os.path.join(home, gone[0]))}: are its runs "
        "among these?"
    ]


def labelled_runs(runs: Iterable[Run], section: RunsSection) -> dict[str, list[Run]]:
    """Return runs by what their files call their arm; under "" those that nothing names.

    Raises ParibusError where one arm has two names that differ in case, space or encoding alone,
    and for a row that sums up others.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        named = [str(run.facts.get(name, "")) for name in NAMES_OF_ROWS]
        for said in (seed_of(run, section), *named):
            if said.casefold() in OF_SEVERAL:
                raise ParibusError(
                    f"{run.source or 'a row'} is called '{said}' and is no run, but says something "
                    "of several; leave such rows out"
                )
        found.setdefault(arm_of(run, section), []).append(run)
    alike: dict[str, str] = {}
    for label in found:
        plain = _plain(label)
        if (other := alike.setdefault(plain, label)) != label:
            raise ParibusError(
                f"arms {_seen(other)} and {_seen(label)} differ in case or space, or in how a "
                "character or number is written, alone; give one arm one name"
            )
    return found


def _plain(label: str) -> str:
    """Return a label as readers see it, but for its case and space; a number by its value."""
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(label)):
            return repr(value)
    seen = unicodedata.normalize("NFKC", label).casefold()
    return "".join(c for c in seen if not c.isspace() and unicodedata.category(c) != "Cf")


def _seen(label: str) -> str:
    """Return a label in quotes; one of other letters than ASCII by their codes."""
    return repr(label) if label.isascii() else ascii(label)


def arm_of(run: Run, section: RunsSection) -> str:
    """Return what the files call the arm of a run; empty where nothing names it."""
    if section.arm in FROM_PATH:
        path = PurePath(os.path.abspath(run.path))
        if section.arm == "name":
            return path.stem
        above = [folder.name for folder in path.parents]
        return next((name for name in above if name and not OF_A_RUN.fullmatch(name)), above[0])
    return in_words(run.facts.get(section.arm, run.facts.get("arm", "")))


def seed_of(run: Run, section: RunsSection) -> str:
    """Return the seed of a run as its files have it; empty where they have none."""
    return in_words(run.facts.get(section.seed, run.facts.get("seed", "")))


def in_words(value: Any) -> str:
    """Return a value of a table as text; a whole number without a fraction."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def numbered(arm: str, runs: Sequence[Run], study: Study) -> dict[int, Run]:
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
                run.source or "a row" for run, of in zip(runs, seeds, strict=True) if of == seed
            ]
            raise ParibusError(
                f"arm '{arm}' has {n} runs of seed {seed} ({', '.join(twins[:2])}); leave out what "
                "is no run of its own, or name another column of seeds, or that of steps"
            )
    absent = study.arm_facts(arm).absent
    needed = {str(seed): seed for seed in study.seeds if seed not in absent}
    by_seed = {needed[of]: run for run, of in zip(runs, seeds, strict=True) if of in needed}
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
    others = [run for run, of in zip(runs, seeds, strict=True) if of not in needed]
    return by_seed | dict(zip(free, others, strict=False))


def _replaced(arm: str, mine: Mapping[int, Run], section: RunsSection) -> list[str]:
    """Return that runs of an arm are of other seeds than those of the study, in words."""
    other = {seed: of for seed, run in mine.items() if (of := seed_of(run, section)) != str(seed)}
    other = {seed: of for seed, of in other.items() if of}  # without one, nothing is known
    if not other:
        return []
    theirs, ours = some([*other.values()], SEEDS_TOLD), some([*map(str, other)], SEEDS_TOLD)
    return [f"runs of {arm} are of seeds {theirs} in place of the registered {ours}"]


def score_of(run: Run, name: str, at_step: float | None = None) -> float:
    """Return a score of a run: its last, or that of a stated step; NaN where it had diverged, or
    crashed, before.

    Raises ParibusError where the run has no such score, or none at that step: one that is still
    running has not diverged.
    """
    if at_step is not None and run.curves.get(name):
        value = run.at(name, at_step)
        if value is not None:
            return value
        last, ended = run.curves[name][-1]
        if last < at_step and ("crashed" in run.facts or not math.isfinite(ended)):
            return math.nan
        raise _NotThereError(f"{run.source or 'a run'} has no {name} at step {at_step:g}")
    if name in run.scores:
        return run.scores[name]
    # A log that ends before its first value. An empty cell of a table is a missing score.
    is_log = run.reader not in TABLES
    if is_log and (not run.scores or run.facts.keys() & {"crashed", "cut"}):
        return math.nan
    known = nearest(name, run.scores) if run.scores else "it has none"
    raise ParibusError(f"{run.source or 'a row'} has no score '{name}': {known}")


def without_missing(by_arm: Mapping[str, Sequence[Run]], name: str) -> dict[str, list[Run]]:
    """Return each arm's runs without those whose table has no value of a score.

    An empty cell says nothing about the run. Runs that had not finished stay: `without_crashed`
    refuses them, or excludes them.
    """
    return {
        arm: [
            run
            for run in runs
            if name in run.scores or run.reader not in TABLES or NOT_FINISHED in run.facts
        ]
        for arm, runs in by_arm.items()
    }


def _missing_scores(
    by_arm: Mapping[str, Sequence[Run]], whole: Mapping[str, Sequence[Run]], name: str
) -> list[str]:
    """Return a note for each arm that has runs without a score."""
    return [
        f"{missing} of {plural(len(runs), 'run')} of {arm} excluded: no {name} (an empty cell is a "
        "missing score; write NaN for a run that diverged)."
        for arm, runs in by_arm.items()
        if (missing := len(runs) - len(whole[arm]))
    ]


def without_crashed(
    by_arm: Mapping[str, Sequence[Run]], name: str, section: RunsSection
) -> dict[str, list[Run]]:
    """Return the runs of each arm that count: where crashed ones are left out, those with a finite
    score that had finished.

    Raises ParibusError for a run that counts though its files say that it had not finished, unless
    it had come as far as the others, or has NaN for a score: it diverged.
    """
    every = [run for runs in by_arm.values() for run in runs]
    whole = [run.facts for run in every if NOT_FINISHED not in run.facts]
    last = max((float(of["steps"]) for of in whole if "steps" in of), default=math.inf)

    def is_finite(run: Run) -> bool:
        return math.isfinite(score_of(run, name, section.at_step))

    def is_early(run: Run) -> bool:
        if NOT_FINISHED not in run.facts or name not in run.scores:
            return NOT_FINISHED in run.facts
        is_stated = section.at_step is not None and bool(run.curves.get(name))
        came_to = float(run.facts.get("steps", -math.inf))
        return is_finite(run) and not is_stated and came_to < last

    if section.crashed == "exclude":
        return {
            arm: [run for run in runs if not is_early(run) and is_finite(run)]
            for arm, runs in by_arm.items()
        }
    if early := [run for run in every if is_early(run)]:
        each = [
            f"{run.facts.get('Name') or run.source or 'a row'} is {run.facts[NOT_FINISHED]}"
            + (f" at step {run.facts['steps']:g}" if "steps" in run.facts else "")
            + ("" if name in run.scores else f" and has no {name}")
            for run in early
        ]
        raise ParibusError(
            f"{len(early)} of {plural(len(every), 'run')} had not finished: "
            f"{some(each, SEEDS_TOLD)}; leave them out with --crashed exclude, or wait for them; "
            "of one that diverged, NaN says so; if they had, drop the column that says otherwise"
        )
    return {arm: list(runs) for arm, runs in by_arm.items()}


class _NotThereError(ParibusError):
    """A run has no score at a stated step."""


def require_at_step(by_arm: Mapping[str, Sequence[Run]], name: str, step: float | None) -> None:
    """Raise ParibusError that names all runs without a score at a stated step, and what they
    have."""
    if step is None:
        return
    runs = [(arm, run) for arm, mine in by_arm.items() for run in mine]
    odd: list[tuple[str, str]] = []
    for arm, run in runs:
        try:
            score_of(run, name, step)
        except _NotThereError:
            nearest = min((at for at, _ in run.curves[name]), key=lambda at: abs(at - step))
            odd.append((arm, f"{run.source or 'a run'} (nearest: {nearest:g})"))
    if odd:
        counts = Counter(arm for arm, _ in odd)
        each = ", ".join(f"{n} of {len(by_arm[arm])} of {arm}" for arm, n in counts.items())
        named = some([said for _, said in odd], MOST_NAMED)
        raise ParibusError(
            f"{len(odd)} of {plural(len(runs), 'run')} ({each}) have no {name} at step {step:g}: "
            f"{named}; state a step that all runs have, or leave out runs that did not come "
            "to it (of one that diverged, NaN says so)"
        )


def _require_curves(study: Study, runs: Sequence[Run]) -> None:
    """Raise ParibusError where a step is stated, and a score of no step would be read."""
    step, name = section_of(study).at_step, study.primary.metric
    for run in runs:
        if step is not None and name in run.scores and not run.curves.get(name):
            raise ParibusError(
                f"{run.source or 'a row'} has a {name} of no step, and it is to be read at step "
                f"{step:g}; name the column of steps, or state no step"
            )


def _require_one_evaluation(study: Study, runs: Sequence[Run]) -> None:
    """Raise ParibusError where logs show that runs were evaluated on other sets, or in other
    units."""
    tasks = {name.partition("/")[0] for name in section_of(study).scores}
    for fact in (*EVALUATED, *(f"task_hash/{task}" for task in sorted(tasks))):
        known = [run for run in runs if fact in run.facts]
        for run in known:
            if run.facts[fact] != known[0].facts[fact]:
                raise ParibusError(
                    f"runs of {study.primary.metric} were not evaluated alike: {fact} is "
                    f"{known[0].facts[fact]!s:.40} in {known[0].source or 'one'} and "
                    f"{run.facts[fact]!s:.40} in {run.source or 'another'}; judge them apart"
                )


def _require_same_items(study: Study, runs: Sequence[Run]) -> None:
    """Raise ParibusError where runs have other items of a score: of one that is by item all have
    some, of others those whose files tell."""
    for name, score in section_of(study).scores.items():
        known = [run for run in runs if score.by_item or run.items.get(name)]
        for run in known:
            first, own = (one.items.get(name, {}).keys() for one in (known[0], run))
            odd = first ^ own
            if not first or odd:
                some = (
                    f"such as '{min(odd)}' ({len(own)} and {len(first)})"
                    if odd
                    else "as neither has any"
                )
                raise ParibusError(
                    f"{run.source or 'a run'} has other items of {name} than "
                    f"{known[0].source or 'the first'}, {some}; compare runs on the same items"
                )


def _record(study: Study, run: Run, budgets: Mapping[str, float]) -> TrialRecord:
    section = section_of(study)
    scores = {
        name: score_of(run, name, section.at_step)
        if name == study.primary.metric or name in run.scores
        else math.nan
        for name in section.scores
    }
    censored = []
    for name, budget in budgets.items():
        needed = _needed(study, run, name)
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
        curves={name: _thinned(run.curves[name]) for name in section.scores if name in run.curves},
        seconds=seconds if isinstance(seconds, float) and 0 < seconds < math.inf else None,
        about={"facts": facts | {"source": run.source} | kept},
    )


def _stopped_early(found: Mapping[Trial, Run]) -> list[str]:
    """Return of each arm how many of its runs ended before the last step that they planned."""
    told = []
    for arm in dict.fromkeys(arm for arm, _ in found):
        mine = [run.facts for (one, _), run in found.items() if one == arm]
        ends = [(of.get("steps"), of.get("planned_steps")) for of in mine]
        early = [(at, end) for at, end in ends if _is_before(at, end)]
        if early:
            at, end = early[0]
            told.append(
                f"{len(early)} of {plural(len(mine), 'run')} of {arm} stopped before the last step "
                f"that was planned, such as at {at:,g} of {end:,g}: what they scored there counts."
            )
    return told


def _thinned(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return an even choice of the points of a curve, first and last among them, to be drawn."""
    if len(curve) <= MOST_POINTS:
        return list(curve)
    chosen = np.linspace(0, len(curve) - 1, MOST_POINTS).round().astype(int)
    return [curve[at] for at in chosen.tolist()]


def _of_several_programs(found: Mapping[Trial, Run]) -> list[str]:
    """Ask of each arm whose runs are of several programs or commits whether it is one arm."""
    told = []
    for arm in dict.fromkeys(arm for arm, _ in found):
        mine = [run.facts for (one, _), run in found.items() if one == arm]
        for fact, what in PROGRAM.items():
            counts = Counter(str(of[fact]) for of in mine if fact in of)
            if len(counts) > 1:
                each = some([f"{of[:12]} ({n})" for of, n in counts.most_common()], PROGRAMS_TOLD)
                told.append(
                    f"The runs of {arm} are of {len(counts)} {what}, {each}: is it one arm?"
                )
                break
    return told


def _of_cut_logs(found: Mapping[Trial, Run]) -> list[str]:
    """Say which runs are of logs that end in the middle of something; tables say it themselves."""
    cut = [run for run in found.values() if "cut" in run.facts and run.reader != "table"]
    if not cut:
        return []
    some = f"such as {cut[0].source} ({cut[0].facts['cut']})"
    return [f"{len(cut)} of {plural(len(found), 'run')} are of logs that are cut, {some}."]


def _of_other_lengths(study: Study, found: Mapping[Trial, Run]) -> list[str]:
    """Say that runs ended at different steps, where no step is stated at which they are read."""
    if section_of(study).at_step is not None:
        return []
    by_arm = _ends(found, study.primary.metric)
    if len(set().union(*by_arm.values())) < 2:
        by_arm = _ends(found, "")
    if len(set().union(*by_arm.values())) < 2:
        return []
    each = []
    for arm, steps in by_arm.items():
        low, high = min(steps), max(steps)
        each.append(f"{arm} {low:,g}" + (f" to {high:,g}" if high > low else ""))
    shown = ", ".join(each[:ARMS_TOLD]) + (" ..." if len(each) > ARMS_TOLD else "")
    return [f"Scores are those of the last step logged, which differs: {shown}."]


def _in_other_units(study: Study, found: Mapping[Trial, Run]) -> list[str]:
    """Ask of scores that are about a hundred times as large in some runs as in the others whether
    they are per cent there. Raises ParibusError where they must be: of a score that is better
    higher, those up to 1 beside those up to 100."""
    section, told = section_of(study), []
    for name in section.scores:
        values = [
            (value, trial[0])
            for trial, run in found.items()
            if name == study.primary.metric or name in run.scores
            if math.isfinite(value := score_of(run, name, section.at_step)) and value
        ]
        sizes = sorted((abs(value), arm) for value, arm in values)
        gaps = [high / low for (low, _), (high, _) in pairwise(sizes)]
        at = max(range(len(gaps)), key=gaps.__getitem__, default=0) + 1
        less, more = sizes[:at], sizes[at:]
        if not more:
            continue
        times = median(size for size, _ in more) / median(size for size, _ in less)
        if gaps[at - 1] > math.sqrt(times) and PER_CENT[0] <= times <= PER_CENT[1]:
            arms = ", ".join(dict.fromkeys(arm for _, arm in more))
            said = (
                f"{name} is {more[0][0]:g} or more in {plural(len(more), 'run')} (of {arms}) and "
                f"{less[-1][0]:g} or less in the other {len(less)}, about {times:.0f} times as "
                "little"
            )
            are_shares = less[-1][0] <= 1 < more[0][0] and more[-1][0] <= PER_CENT_MOST
            is_accuracy = section.scores[name].better == "higher" and min(values)[0] > 0
            if are_shares and is_accuracy:
                raise ParibusError(f"{said}: write all of them in per cent, or all as shares")
            told.append(f"{said}: are some in per cent, or in another unit?")
    return told


def _several_at_a_step(study: Study, found: Mapping[Trial, Run]) -> list[str]:
    """Say which runs have several values at the step whose value counts, of which the last in the
    file is taken: right after a resume, and wrong where steps begin anew in each epoch."""
    section, score = section_of(study), study.primary.metric
    odd = []
    for run in found.values():
        curve = run.curves.get(score)
        if curve:
            step = section.at_step if section.at_step is not None else curve[-1][0]
            there = (
                np.flatnonzero(curve.steps == step).tolist()
                if isinstance(curve, Curve)
                else [place for place, (at, _) in enumerate(curve) if at == step]
            )
            values = {repr(curve[place][1]) for place in there}
            odd += [(run.source or "a run", step, len(values))] if len(values) > 1 else []
    if not odd:
        return []
    source, step, n = odd[0]
    return [
        f"{len(odd)} of {plural(len(found), 'run')} have several values of {score} at the step "
        f"that counts, such as {source} with {n} at step {step:g}: the last in the file is taken. "
        "Do steps begin anew in each epoch, are rows of several kinds, or is the best checkpoint "
        "evaluated at the end?"
    ]


def _empty_at_the_end(study: Study, found: Mapping[Trial, Run]) -> list[str]:
    """Ask of runs whose tables have no score at a later step, where other runs have one, whether
    they diverged: NaN is often written as an empty cell."""
    if section_of(study).at_step is not None:
        return []
    score, told = study.primary.metric, []
    last = max(
        (run.curves[score][-1][0] for run in found.values() if score in run.curves), default=0
    )
    for arm in dict.fromkeys(arm for arm, _ in found):
        mine = [run for (one, _), run in found.items() if one == arm]
        ends = [
            run.curves[score][-1][0]
            for run in mine
            if f"{EMPTY}/{score}" in run.facts and run.curves[score][-1][0] < last
        ]
        if ends:
            told.append(
                f"{len(ends)} of {plural(len(mine), 'run')} of {arm} have a row without a {score} "
                f"after their last one, such as after step {ends[0]:g}, and others have one at "
                f"step {last:g}: did they diverge? write NaN then; an empty cell is passed over."
            )
    return told


def _ends(found: Mapping[Trial, Run], score: str) -> dict[str, set[float]]:
    """Return by arm the steps at which runs have their last value of a score, or, of those without
    its curve, ended."""
    by_arm: dict[str, set[float]] = {}
    for (arm, _), run in found.items():
        curve = run.curves.get(score)
        end = curve[-1][0] if curve else run.facts.get("steps")
        if isinstance(end, int | float):
            by_arm.setdefault(arm, set()).add(float(end))
    return by_arm


def _begin_alike(study: Study, found: Mapping[Trial, Run]) -> list[str]:
    """Ask of runs of an arm whose curves begin with the same values whether one continues the
    other."""
    told = []
    score = study.primary.metric
    for arm in dict.fromkeys(arm for arm, _ in found):
        by_start: dict[object, list[Run]] = {}
        mine = [run for (one, _), run in found.items() if one == arm]
        for run in mine:
            start = list(run.curves.get(score, ())[:LEAST_OF_A_CURVE])
            values = {value for _, value in start}
            # Coarse values may well be equal, and those of a program that waits do not change.
            if len(values) == LEAST_OF_A_CURVE and all(map(_is_fine, values)):
                by_start.setdefault(tuple(start), []).append(run)
        twins = [runs for runs in by_start.values() if len(runs) > 1]
        if twins:
            some = " and ".join(run.source or "a row" for run in twins[0][:2])
            told.append(
                f"{sum(map(len, twins))} of {plural(len(mine), 'run')} of {arm} begin with the "
                f"same values of {score} as another one, such as {some}: is it one run that was "
                "resumed? each counts."
            )
    return told


def _is_fine(value: float) -> bool:
    """Return whether a value has so many digits that chance hardly gives it three times."""
    return math.isfinite(value) and float(f"{value:.{FINE_DIGITS - 1}g}") != value


def _is_before(step: object, planned: object) -> bool:
    return isinstance(step, int | float) and isinstance(planned, int | float) and step < planned


def _budgets(study: Study, runs: Sequence[Run]) -> dict[str, float]:
    """Return by name of what is needed to the target, as far as it is an endpoint, the budget that
    every run had."""
    wanted = [one.metric for one in study.endpoints if one.metric.endswith(TO_TARGET)]
    found = {}
    for name in wanted:
        ends = [
            spent[-1] for run in runs if len(spent := spent_by(run, study.primary.metric, name))
        ]
        found[name] = float(min(ends)) if ends else math.nan
    return found


def spent_by(run: Run, score: str, name: str) -> np.ndarray:
    """Return what a run had spent at each point of the curve of `score`; empty where that is not
    told. `name` is such as `steps_to_target`."""
    steps = np.array([step for step, _ in run.curves.get(score, ())], np.float64)
    budget = name.removesuffix(TO_TARGET)
    if budget == "steps":
        return steps
    for curve in SPENT[budget]:
        if curve in run.curves:
            at, spent = np.array(run.curves[curve], np.float64).T
            inside = len(steps) and at[0] <= steps[0] and steps[-1] <= at[-1]
            return np.interp(steps, at, spent) if inside else np.array([])
    return np.array([])


def _needed(study: Study, run: Run, name: str) -> float:
    """Return the budget at which a run comes to the target; infinite where it never does."""
    metric, target = study.primary.metric, section_of(study).target
    spent = spent_by(run, metric, name)
    if not len(spent) or target is None:
        return math.nan
    sign = -1 if declared(study)[metric].better == "higher" else 1
    values = sign * np.array([value for _, value in run.curves[metric]], np.float64)
    curve = LossCurve(spent, spent, None, None, values, 1)
    return curve.spent_at(sign * target, "tokens")
