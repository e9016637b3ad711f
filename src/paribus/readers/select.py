"""Select the runs to compare: their arms, their seeds, and the runs that count."""

from __future__ import annotations

import contextlib
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from paribus.errors import ParibusError, nearest
from paribus.numbers import plural, some
from paribus.readers.copies import counted_once, drop_shared_seed
from paribus.readers.facts import Finding, find_seed
from paribus.readers.port import NOT_FINISHED, Columns, Run, cell_text, split_seed
from paribus.readers.read import Reading, Selection, read
from paribus.study.runs import RunsSection

ROWS = ("step", "item", "metric", "value")  # columns in which rows of one run differ
FROM_PATH = ("folder", "name")  # of a file, which may name the arm
# Folders and ends of their names that say a seed, a repeat or a checkpoint, and no arm.
OF_A_RUN = re.compile(
    r"(?:checkpoint|version|seed|run|rep|trial|fold|s)[ _=-]?\d+|logs?|csv(?:_logs)?|lightning_logs"
    r"|tensorboard|tb|wandb|latest",
    re.IGNORECASE,
)
# What a row is called that sums up others.
SUMMARIES = {"all", "average", "avg", "count", "max", "mean", "median", "min", "overall"}
SUMMARIES |= {"sd", "se", "sem", "std", "stderr", "sum", "total", "var"}
NAME_COLUMNS = ("", "Unnamed: 0", "index", "Name", "name", "run")  # as pandas writes them
PARENTS = ("parent", "tags.mlflow.parentRunId", "parent_run_id")  # facts that name a sweep
TABLES = ("", "table")  # readers of tables, in memory or in a file
FAILED = re.compile(r"fail|kill|error|oom|out.of.memory", re.IGNORECASE)  # and no budget
MOST_NAMED = 20  # runs in an error
MOST_SHOWN = 5


def table_columns(
    scores: Sequence[str], arm: str | None, seed: str | None, *, pair: bool = False, **rows: str
) -> Columns:
    """Return what the columns of a table mean, as far as it is stated: what is not named may be
    missing, but pairs need seeds, and runs with several rows need arms and seeds.

    `rows` are what rows of one run differ in: `step`, `item`, `metric` and `value`.
    """
    seed = seed or ("seed" if any(rows.values()) or pair else "")
    arm = arm or ("arm" if seed else "")
    wide = () if rows.get("metric") else tuple(scores)
    if arm in FROM_PATH:
        return replace(Columns(wide, "", seed), **rows).by_file()
    return replace(Columns(wide, arm, seed), **rows)


def read_runs(
    paths: Any,
    reader: Any = None,
    columns: Columns | None = None,
    *,
    arm: str | None,
    home: Path | None = None,
) -> tuple[Reading, str]:
    """Return the runs in files, and what tells their arms apart: what `arm` says, the label of each
    path that is given as `label=path`, or else the arm that logs state or their folder.

    `home` is the folder of a study that names the paths, whose files may not exist yet. Raises
    ParibusError.
    """
    path_list = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    labelled = [split_label(os.fspath(path)) for path in path_list]
    labelled = [(label, os.path.join(home or "", path)) for label, path in labelled]
    options: dict[str, Any] = {"once": False, "needed": home is None}
    files = [path for _, path in labelled]
    by_file = columns and replace(columns, arm="").by_file()
    is_default = bool(columns) and columns.arm == "arm"
    if not any(label for label, _ in labelled):
        reading = read(files, reader, columns=columns, **options)
        if arm is None and not any("arm" in run.facts for run in reading.runs):
            if not reading.runs and is_default:
                again = read(files, reader, columns=by_file, **options)
                reading = again if again.runs else reading
            arm = "folder" if reading.runs else None
    else:
        arm = "arm"
        reading = _read_labelled(labelled, reader, by_file if is_default else columns, options)
    section = RunsSection(arm=arm or "arm")
    reading.runs, reading.copies = counted_once(reading.runs, lambda run: arm_of(run, section))
    drop_shared_seed(reading.runs, lambda run: arm_of(run, section))
    return reading, section.arm


def _read_labelled(
    labelled: Sequence[tuple[str, str]], reader: Any, columns: Columns | None, options: Any
) -> Reading:
    """Return the runs in files with their labels as arms. Raises ParibusError for a path without a
    label, and for a file of two arms."""
    if bare := [path for label, path in labelled if not label]:
        raise ParibusError(f"'{bare[0]}' has no label, and others do; write label={bare[0]}")
    reading, labels = Reading(), dict[str, str]()
    for label, path in labelled:
        part = read(path, reader, columns=columns, **options)
        for file in part.paths:
            if (earlier := labels.setdefault(os.path.realpath(file), label)) != label:
                raise ParibusError(
                    f"{file} is given as arm '{earlier}' and as arm '{label}'; give it to one of "
                    "them"
                )
        for run in part.runs:
            run.facts["arm"] = label
        reading.add(part)
    return reading


def split_label(path: str) -> tuple[str, str]:
    """Return `("new", "runs/new/*.txt")` of `new=runs/new/*.txt`; a file of that name is a file."""
    label, equals, rest = path.partition("=")
    is_label = equals and label and rest and os.sep not in label and not os.path.lexists(path)
    return (label, rest) if is_label else ("", path)


def select_runs(
    by_label: Mapping[str, Sequence[Run]], section: RunsSection, score: str, *, lower: bool
) -> Selection:
    """Return the runs that count in a comparison by `score`.

    Runs whose table has no score are left out, runs that failed are data or left out as `section`
    states, and of a sweep the best run of each seed is taken where it states so. `lower` says that
    lower scores are better. Raises ParibusError for runs that have not finished, and for those
    without a score at the stated step.
    """
    complete, findings = {}, []
    for label, runs in by_label.items():
        complete[label] = [run for run in runs if _is_told(run, score)]
        if missing := [run for run in runs if not _is_told(run, score)]:
            named = some([run.source or "a row" for run in missing], 3)
            text = (
                f"{len(missing)} of {plural(len(runs), 'run')} of {label} excluded: no {score} in "
                f"{named} (an empty cell is a missing score; write NaN for a run that diverged)."
            )
            findings.append(Finding("no_score", text))
        seeded = [run for run in complete[label] if seed_of(run, section)]
        if seeded and (bare := len(complete[label]) - len(seeded)):
            text = (
                f"{bare} of {plural(len(runs), 'run')} of {label} have no seed, and the others do: "
                "are they rows that sum up others? each counts."
            )
            findings.append(Finding("no_seed", text))
    require_at_step(complete, score, section.at_step)
    kept = _drop_failed(complete, score, section, findings)
    excluded = {label: n for label, runs in complete.items() if (n := len(runs) - len(kept[label]))}
    if section.best_of:
        kept = _take_best(kept, section, score, lower=lower, findings=findings)
    return Selection(kept, excluded, findings)


def _is_told(run: Run, score: str) -> bool:
    """Return whether the files of a run say what its score is; an empty cell does not."""
    return score in run.scores or run.reader not in TABLES or NOT_FINISHED in run.facts


def group_by_arm(runs: Iterable[Run], section: RunsSection) -> dict[str, list[Run]]:
    """Return the runs that `section.where` keeps, by arm label; runs without a label are under
    "".

    Raises ParibusError where one arm has two names that differ in case, space or encoding alone,
    for a row that sums up others, and for a condition that no run meets.
    """
    kept_runs = list(runs)
    kept = _meet_conditions(kept_runs, section.where)
    parents = {str(run.facts[name]) for run in kept for name in PARENTS if name in run.facts}
    by_label: dict[str, list[Run]] = {}
    for run in kept:
        if parents and str(run.facts.get("run_id", run.facts.get("run", ""))) in parents:
            continue  # of a sweep, which has no score of its own
        names = [str(run.facts.get(name, "")) for name in NAME_COLUMNS]
        for name in (seed_of(run, section), *names):
            if name.casefold() in SUMMARIES:
                raise ParibusError(
                    f"{run.source or 'a row'} is called '{name}' and is not a run, but sums up "
                    "others; leave such rows out"
                )
        by_label.setdefault(arm_of(run, section), []).append(run)
    spelt: dict[str, str] = {}
    for label in by_label:
        if (earlier := spelt.setdefault(_spell(label), label)) != label:
            raise ParibusError(
                f"arms {_quote(earlier)} and {_quote(label)} differ in case or space, or in how a "
                "character or number is written, alone; give one arm one name"
            )
    return by_label


def _meet_conditions(runs: Sequence[Run], conditions: Sequence[str]) -> list[Run]:
    kept = list(runs)
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise ParibusError(f"where: '{condition}' is not a condition; write it as lr=0.01")
        known = {fact for run in runs for fact in run.facts}
        if name not in known:
            raise ParibusError(f"where: no run has '{name}': {nearest(name, known)}")
        values = sorted({cell_text(run.facts[name]) for run in kept if name in run.facts})
        kept = [run for run in kept if _spell(cell_text(run.facts.get(name))) == _spell(value)]
        if not kept:
            raise ParibusError(f"where: no run has {name}={value}; its values: {some(values, 8)}")
    return kept


def _spell(label: str) -> str:
    """Return a label as people see it, without case and space; a number by its value."""
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(label)):
            return repr(value)
    seen = unicodedata.normalize("NFKC", label).casefold()
    return "".join(c for c in seen if not c.isspace() and unicodedata.category(c) != "Cf")


def _quote(label: str) -> str:
    """Return a label in quotes; one of other letters than ASCII by their codes."""
    return repr(label) if label.isascii() else ascii(label)


def arm_of(run: Run, section: RunsSection) -> str:
    """Return what the files call the arm of a run; empty where nothing names it."""
    if section.arm not in FROM_PATH:
        return cell_text(run.facts.get(section.arm, run.facts.get("arm", "")))
    path = PurePath(os.path.abspath(run.path))
    if section.arm == "name":
        return path.stem
    above = [folder.name for folder in path.parents]
    own = next((name for name in above if name and not OF_A_RUN.fullmatch(name)), above[0])
    return split_seed(own)[0]


def seed_of(run: Run, section: RunsSection) -> str:
    """Return the seed of a run as its files have it; empty where they have none."""
    return cell_text(run.facts.get(section.seed, run.facts.get("seed", "")))


def set_nested_seed(runs: Sequence[Run], section: RunsSection) -> None:
    """Give runs whose seed is nested in their configuration the fact `seed`."""
    name = find_seed(runs, section.seed)
    if name != section.seed:
        for run in runs:
            if name in run.facts:
                run.facts["seed"] = run.facts[name]


def score_of(run: Run, name: str, at_step: float | None = None) -> float | None:
    """Return a run's score: the last one, or that of `at_step`; NaN if it diverged or crashed
    before, and None if it has none there although it has not diverged.

    Raises ParibusError if the run has no such score.
    """
    curve = run.curves.get(name)
    if at_step is not None and curve:
        last, value = curve[-1]
        is_lost = last < at_step and ("crashed" in run.facts or not math.isfinite(value))
        at = run.at(name, at_step)
        return math.nan if at is None and is_lost else at
    if name in run.scores:
        return run.scores[name]
    # A log that ends before its first value. An empty cell of a table is a missing score.
    is_log = run.reader not in TABLES
    if is_log and (not run.scores or run.facts.keys() & {"crashed", "cut"}):
        return math.nan
    known = nearest(name, run.scores) if run.scores else "it has none"
    raise ParibusError(f"{run.source or 'a row'} has no score '{name}': {known}")


def final_score(run: Run, name: str, at_step: float | None = None) -> float:
    """Return a run's score as `score_of`. Raises ParibusError where it has none at `at_step`."""
    if (value := score_of(run, name, at_step)) is None:
        raise ParibusError(f"{run.source or 'a run'} has no {name} at step {at_step:g}")
    return value


def require_at_step(by_label: Mapping[str, Sequence[Run]], name: str, step: float | None) -> None:
    """Raise ParibusError that names all runs without a score at a stated step."""
    if step is None:
        return
    runs = [(label, run) for label, own in by_label.items() for run in own if name in run.scores]
    for _, run in runs:
        if not run.curves.get(name):
            raise ParibusError(
                f"{run.source or 'a row'} has a {name} of no step, and it is to be read at step "
                f"{step:g}; name the column of steps, or state no step"
            )
    missing = [(label, run) for label, run in runs if score_of(run, name, step) is None]
    if missing:
        counts = Counter(label for label, _ in missing)
        each = ", ".join(f"{n} of {len(by_label[label])} of {label}" for label, n in counts.items())
        named = []
        for _, run in missing:
            steps = np.array([at for at, _ in run.curves[name]])
            closest = steps[np.abs(steps - step).argmin()]
            named.append(f"{run.source or 'a run'} (nearest: {closest:g})")
        raise ParibusError(
            f"{len(missing)} of {plural(len(runs), 'run')} ({each}) have no {name} at step "
            f"{step:g}: {some(named, MOST_NAMED)}; state a step that all runs have, or leave out "
            "runs that did not come to it (of one that diverged, NaN says so)"
        )


def _drop_failed(
    by_label: Mapping[str, Sequence[Run]],
    score: str,
    section: RunsSection,
    findings: list[Finding],
) -> dict[str, list[Run]]:
    """Return the runs of each arm that count.

    A run that had not finished counts if it came as far as the others, if its score is NaN, or if
    the section states that a budget stopped it. Raises ParibusError for any other.
    """
    every = [run for runs in by_label.values() for run in runs]
    ends = [run.facts.get("steps") for run in every if NOT_FINISHED not in run.facts]
    last = max((end for end in ends if isinstance(end, float)), default=math.inf)

    def is_finite(run: Run) -> bool:
        return math.isfinite(final_score(run, score, section.at_step))

    def is_early(run: Run) -> bool:
        state = run.facts.get(NOT_FINISHED)
        if state is None or score not in run.scores:
            return state is not None
        is_stated = section.at_step is not None and bool(run.curves.get(score))
        is_short = not is_stated and float(run.facts.get("steps", -math.inf)) < last
        return is_finite(run) and (is_short or bool(FAILED.search(str(state))))

    early = [run for run in every if is_early(run)]
    if section.stopped_early == "ok" and (stopped := [r for r in early if score in r.scores]):
        states = some(list(dict.fromkeys(str(run.facts[NOT_FINISHED]) for run in stopped)))
        text = (
            f"{len(stopped)} of {plural(len(every), 'run')} are {states}, and count as stated: "
            f"their budget stopped them{_describe_ends(every)}."
        )
        ids = set(map(id, stopped))
        of_arms = [arm for arm, runs in by_label.items() if ids & set(map(id, runs))]
        if len(of_arms) < len(by_label):
            text += f" All are of {some(of_arms)}: does the change make runs slower, or fail?"
        findings.append(Finding("stopped_by_budget", text))
        early = [run for run in early if score not in run.scores]
    lost = set(map(id, early))
    if section.crashed == "exclude":
        return {
            label: [run for run in runs if id(run) not in lost and is_finite(run)]
            for label, runs in by_label.items()
        }
    if early:
        each = [
            f"{run.facts.get('Name') or run.source or 'a row'} is {run.facts[NOT_FINISHED]}"
            + (f" at step {run.facts['steps']:g}" if "steps" in run.facts else "")
            + ("" if score in run.scores else f" and has no {score}")
            for run in early
        ]
        raise ParibusError(
            f"{len(each)} of {plural(len(every), 'run')} had not finished{_describe_ends(every)}: "
            f"{some(each, MOST_SHOWN)}; exclude them with --crashed exclude, wait for them to "
            "finish, or pass --stopped-early ok if a budget common to all runs stopped them; write "
            "NaN as the score of a run that diverged"
        )
    return {label: list(runs) for label, runs in by_label.items()}


def _describe_ends(runs: Sequence[Run]) -> str:
    for name in ("steps", "epoch", "Epoch"):
        ends = [value for run in runs if isinstance(value := run.facts.get(name), float)]
        if ends and min(ends) < max(ends):
            return f", at {name.rstrip('s').lower()} {min(ends):g} to {max(ends):g}"
    return ""


def _take_best(
    by_label: Mapping[str, Sequence[Run]],
    section: RunsSection,
    score: str,
    *,
    lower: bool,
    findings: list[Finding],
) -> dict[str, list[Run]]:
    """Return of each arm and seed the run with the best finite score over a fact.

    Raises ParibusError if arms have different numbers of values to choose from.
    """
    name = section.best_of
    if not any(name in run.facts for runs in by_label.values() for run in runs):
        known = {fact for runs in by_label.values() for run in runs for fact in run.facts}
        raise ParibusError(f"best_of: no run has '{name}': {nearest(name, known)}")

    def rank(run: Run) -> float:
        value = final_score(run, score, section.at_step)
        return math.inf if math.isnan(value) else value if lower else -value

    sizes, kept = {}, {}
    for label, runs in by_label.items():
        sizes[label] = len({run.facts.get(name) for run in runs})
        by_seed: dict[str, list[Run]] = {}
        for run in runs:
            by_seed.setdefault(seed_of(run, section), []).append(run)
        kept[label] = [min(own, key=rank) for own in by_seed.values()]
    if len(set(sizes.values())) > 1:
        each = ", ".join(f"{n} in {label}" for label, n in sizes.items())
        raise ParibusError(
            f"best_of: arms have different numbers of {name} to choose from ({each}), which "
            "favours the arm with more; give every arm the same number"
        )
    text = (
        f"The best {name} of {max(sizes.values())} was chosen by the score itself, for each seed: "
        "both arms look better than they are, and the error of choosing is in no interval."
    )
    findings.append(Finding("chosen_by_score", text))
    return kept
