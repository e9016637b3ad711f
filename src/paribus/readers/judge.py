"""Judging of finished runs: build a study from a table or files, and analyze it like any other."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from paribus.analysis import analyse
from paribus.decision import Verdicts, decide
from paribus.errors import ParibusError, nearest
from paribus.ledger import unrecorded
from paribus.metric import readable
from paribus.numbers import fixed, level, p_value, plural, some
from paribus.readers.facts import TOKENS, WORDS, find_kind, values_of
from paribus.readers.port import FROM_PATH, GRADIENT_NORM, Run, cell_text
from paribus.readers.read import Reading, arm_of, read
from paribus.readers.select import (
    Selection,
    group_by_arm,
    score_of,
    seed_of,
    select_runs,
)
from paribus.readers.tables import runs_of
from paribus.results import Results
from paribus.results.store import ResultsFolder, results_folder
from paribus.statistics import DESCRIPTIVE_BELOW, paired_t
from paribus.statistics.t_test import mean_and_sd
from paribus.study import Study, load_study
from paribus.study.runs import BUDGETS, TO_TARGET, RunsSection, section_from, section_of
from paribus.study.trainer import RUNS
from paribus.trainers.run_values import check_values
from paribus.trainers.runs import judge_runs, paths_of, scores_of, spent_by

MOST_NAMED = 8
Better = Literal["lower", "higher"]


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
    if study.trainer != RUNS:
        raise ParibusError(
            f"{name} uses trainer '{study.trainer}', not 'runs'; run it with `paribus run`, and "
            "judge its results with `paribus report`"
        )
    home = ResultsFolder(Path(name)) if is_folder else results_folder(study, results)
    section = section_of(study)
    listed, is_needed = paths or paths_of(study), bool(paths)
    reading = read(listed, reader, section=section, scores=scores_of(study), needed=is_needed)
    if section.paths and not reading.files and home.read_runs() is None:
        return f"{study.name}: no runs in {', '.join(section.paths)} yet"
    return judge_runs(study, home.path, reading=reading)


def make_study(
    data: Any,
    *,
    score: str | Sequence[str] = (),
    margin: float | None = None,
    baseline: str | float | None = None,
    better: Better | Sequence[Better] | None = None,
    pair: bool | str | None = None,
    alpha: float = 0.05,
    name: str = "judged",
    **options: Any,
) -> tuple[Study, Reading, Selection]:
    """Build a study from finished runs, with one arm per label.

    Args:
        data: a pandas, polars or Arrow table, a dict of columns, or file paths.
        score: the column or score to judge by. If there are several, the first one decides. Known
            log formats have a default.
        margin: the largest change that would not matter, in the score's unit. Without a margin, no
            arm can be shown to be equivalent.
        baseline: the arm that others are compared with. The default is the arm called `baseline`,
            `control` or similar.
        better: "lower" or "higher" for the first score, or a list with one value per score. The
            default is inferred from the score's name.
        pair: True to pair runs with the same seed, assuming that they share data and initial values
            (the card states this); or the column to pair by.
        alpha: the probability of a false claim, over all arms.
        name: the study's name.
        options: `reader`, and the keys of `[runs]`: the columns `arm`, `seed`, `step`, `item`,
            `metric` and `value` (for files, `arm` may also be "folder" or "name"), `at_step`,
            `target`, `crashed`, `stopped_early`, `where`, `best_of`.

    Returns the study, everything that was read, and the runs to compare. Raises ParibusError on bad
    input.
    """
    scores = [score] if isinstance(score, str) else list(score)
    if margin is not None and not margin > 0:
        raise ParibusError(f"--margin {margin:g} must be greater than 0")
    reading, section, by_label = read_data(data, scores, pair=pair, **options)
    scores = scores or [default_score(reading.runs)]
    _require_arms(by_label, section.arm)
    baseline = _find_baseline(baseline, by_label)
    stated = [better] if isinstance(better, str) else list(better or [])
    directions = {s: d or direction(s) for s, d in zip_longest(scores, stated) if s}
    first = scores[0]
    selection = select_runs(by_label, section, scores, lower=directions[first] == "lower")
    by_label = selection.runs
    if empty := [label for label, runs in by_label.items() if not runs]:
        why = f"arm '{empty[0]}' has no finished run with a {first}; write NaN for a run"
        raise ParibusError(f"{why} that diverged, or remove the arm", code="too_few")
    shared = [{seed_of(run, section) for run in runs} for runs in by_label.values()]
    if not pair and "" not in shared[0] and all(own == shared[0] for own in shared[1:]):
        text = "All arms have the same seeds: if runs of a seed share data and initial values,"
        selection.findings.append(
            ("may_pair", f"{text} --pair {section.seed} compares them within seeds.")
        )
    seeds, without = _find_seeds(by_label, section, pair=bool(pair))
    runs = list(chain(*by_label.values()))
    specs: dict[str, dict[str, Any]] = {
        score: {"better": side, "digits": digits_of(_spreads(by_label, score))}
        for score, side in directions.items()
    }
    items = runs[0].items.get(first, {}).keys()
    if items and all(run.items.get(first, {}).keys() == items for run in runs):
        specs[first]["by_item"] = True
    if section.target is not None:
        budgets = [f"{budget}{TO_TARGET}" for budget in BUDGETS]
        budgets = [name for name in budgets if all(len(spent_by(r, first, name)) for r in runs)]
        if not budgets:
            why = f"--target needs a curve of '{first}'; name the step column with --step"
            raise ParibusError(why)
        scores += budgets
    endpoints: list[dict[str, Any]] = [{"metric": score} for score in scores]
    endpoints[0] |= {"primary": True} | ({} if margin is None else {"margin": margin})
    called, arms = _name_folders(by_label), {}
    for label in sorted(by_label, key=lambda label: label != baseline):
        absent = {"runs.without": without[label]} if without[label] else {}
        settings = {"runs.label": label} | absent
        arms[called[label]] = {"title": label, "set": settings}
    treatments = [label for label in by_label if label != baseline]
    study = load_study(
        {
            "name": label_as_name(name),
            "trainer": "runs",
            "question": f"{readable(first)} of {some(treatments)} against {baseline}",
            "baseline": called[baseline],
            "arms": arms,
            "seeds": seeds,
            "endpoints": endpoints,
            "inference": {"test": "paired_t" if pair else "welch_t", "alpha": alpha},
            "runs": section.model_dump(mode="json", exclude_defaults=True) | {"scores": specs},
        }
    )
    return study, reading, selection


def judge_against_bar(
    paths: Sequence[str],
    scores: Sequence[str],
    bar: float,
    *,
    better: Better | None,
    alpha: float,
    **options: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Compare the runs of a single arm with the value `bar`, by Student's one-sample t test.

    Returns the comparison and the lines of its card. `make_study` explains the options.

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
        why = f"--bar {bar} and the score of at least one run must be finite, and --alpha {alpha}"
        raise ParibusError(f"{why} must be between 0 and 1")
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
    digits = digits_of([sd]) + 1
    span = f" [{fixed(low, digits)}, {fixed(high, digits)}], SD {fixed(sd, digits)}" * (n > 1)
    diverged = f"; {lost} diverged, which rules out BETTER" if lost else ""
    lines = [
        f"Exploratory: {score} of {arm or 'these runs'} against {bar:g}",
        f"  {score}, {side} is better",
        f"  {word}  {fixed(mean, digits)}{span}, n {n}"
        + ("" if p is None else f", p {p_value(p)}"),
        f"The mean with its {level(alpha)} interval"
        + ("." if n >= DESCRIPTIVE_BELOW else "; fewer than five runs are not tested."),
        f"{passed} of {plural(len(runs), 'run')} passed the bar{diverged}.",
    ]
    if failed := selection.excluded.get(arm):
        lines.append(f"Failed runs are excluded: {failed} of {plural(failed + len(runs), 'run')}.")
    against = {"score": score, "bar": bar, "better": side, "word": word, "n": n, "passed": passed}
    against |= {"mean": mean, "sd": sd if n > 1 else None, "low": low, "high": high, "p": p}
    return against | {"diverged": lost}, lines + [text for _, text in selection.findings]


def read_data(
    data: Any,
    scores: Sequence[str],
    *,
    arm: str | None = None,
    seed: str | None = None,
    pair: bool | str | None = None,
    reader: Any = None,
    **section: Any,
) -> tuple[Reading, RunsSection, dict[str, list[Run]]]:
    """Read the runs in a table or in files. `make_study` explains the options.

    Returns the reading, the section `[runs]` with the options, and the runs keyed by arm label.
    Raises ParibusError if there are no runs.
    """
    if isinstance(pair, str) and pair != "seed":
        if seed not in (None, pair):
            why = f"--pair names '{pair}', but --seed names '{seed}'; remove one of them"
            raise ParibusError(why, code="conflict")
        seed = pair
    stated = section_from({"arm": arm or "arm", "seed": seed or "seed", **section})
    listed = data if isinstance(data, list | tuple) else [data]
    if all(isinstance(path, str | os.PathLike) for path in listed):
        reading = read(listed, reader, section=stated, scores=scores)
    else:
        reading = Reading(runs=runs_of(_as_arrow(data), stated, scores, "the table"))
        for run in reading.runs:
            run.finish()
    if not reading.runs:
        reasons = [why for _, why in reading.refused]
        reasons += [f"{path}: {why}" for path, why in reading.skipped]
        none = f"no run was found in {plural(reading.files, 'file')}"
        raise ParibusError("; ".join([none, *reasons[:1]]), code="missing")
    return reading, stated, group_by_arm(reading, stated)


def _as_arrow(data: Any) -> Any:
    """Convert a pandas, polars or Arrow table, or a dict of columns, to an Arrow table.

    Raises ParibusError for any other value.
    """
    import pyarrow as pa

    try:
        if isinstance(data, Mapping):
            return pa.table({str(name): list(values) for name, values in data.items()})
        if hasattr(data, "iloc"):  # of pandas, whose NaN Arrow would read as an empty cell
            return pa.table({str(n): pa.array(data[n], from_pandas=False) for n in data.columns})
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        why = f"{type(data).__name__} is not a table, dict of columns or path: {error}"
        raise ParibusError(why) from None


def default_score(runs: Sequence[Run]) -> str:
    """Return the default score of the log format, or the only score of the runs.

    Raises ParibusError if neither exists.
    """
    names = {name for run in runs for name in run.scores}
    no_results = {name for name in names if find_kind(name) == "time"}
    no_results |= {
        name for name in names if TOKENS.fullmatch(name) or GRADIENT_NORM.fullmatch(name)
    }
    if not names:
        why = f"no column or line of {runs[0].source} is recognized as a score; name a column"
        raise ParibusError(
            f"{why} with --score: {some(sorted(runs[0].facts), 8)}", code="ambiguous"
        )
    known = sorted(names - no_results or names)
    defaults = {run.decides for run in runs if run.decides in run.scores}
    if len(defaults) == 1 or len(known) == 1:
        return [*defaults, *known][0]
    why = f"no score was chosen; name one, such as --score {shlex.quote(known[0])}"
    raise ParibusError(f"{why}: {some(known, MOST_NAMED)}", code="ambiguous")


def _find_baseline(baseline: str | float | None, by_label: Mapping[str, Sequence[Run]]) -> str:
    """Return the baseline's label. Raises ParibusError if the baseline is missing or unknown."""
    names = WORDS["baseline"] if baseline is None else [cell_text(baseline)]
    if known := [name for name in names if name in by_label]:
        return known[0]
    why = "no baseline was chosen" if baseline is None else f"baseline '{baseline}' is not an arm"
    arms = some([f"{label} ({len(runs)})" for label, runs in by_label.items()], MOST_NAMED)
    why += f"; pass --baseline {next(iter(by_label))} or another arm (with its number of runs): "
    why += arms
    raise ParibusError(why, code="ambiguous")


def _require_arms(by_label: Mapping[str, list[Run]], arm: str) -> None:
    """Raise ParibusError unless the runs belong to at least two labelled arms."""
    if len(by_label) > 1 and "" not in by_label:
        return
    label, runs = min(by_label.items())
    why = f"all runs belong to one arm, '{label}'; compare it with a fixed value (--bar)"
    if not label:
        why = f"{runs[0].source} has no '{arm}' that names its arm: "
        why += nearest(arm, runs[0].facts)
    names = dict.fromkeys(name for run in runs for name in run.facts)
    columns = [n for n in names if find_kind(n) in ("setting", "option", "environment", "other")]
    ways = [n for n in columns if 1 < len(values_of(runs, n)) <= len(runs) / 2][:1]
    for way in FROM_PATH:
        arms = {arm_of(run, RunsSection(arm=way)) for run in runs if run.path}
        ways += [way] * (1 < len(arms) <= len(runs) / 2)
    way = " or ".join([f"--arm {shlex.quote(way)}" for way in ways] + ["files as label=PATTERN"])
    raise ParibusError(f"{why}; name the arms with {way}", code="ambiguous")


def _name_folders(labels: Iterable[str]) -> dict[str, str]:
    """Return a folder name for each label. A number is appended to make names unique."""
    called: dict[str, str] = {}
    for label in labels:
        name = label_as_name(label)
        called[label] = f"{name}-{len(called)}" if name in called.values() else name
    return called


def label_as_name(label: str) -> str:
    """Convert a label to a valid folder name of at most 76 characters, without separators."""
    return re.sub(r"[/\\]", "-", label).lstrip(".")[:76] or "unnamed"


def _find_seeds(
    by_label: Mapping[str, list[Run]], section: RunsSection, *, pair: bool
) -> tuple[list[int], dict[str, list[int]]]:
    """Return the study's seeds, and the seeds without a run, keyed by arm label.

    If seeds are not integers, runs are numbered from 1: unpaired runs in order, and pairs by the
    value that they share, such as the name of a text.
    """
    every = {seed_of(run, section) for runs in by_label.values() for run in runs}
    places = {seed: place for place, seed in enumerate(sorted(every))}
    if not all(re.fullmatch("0|[1-9][0-9]{0,17}", seed) for seed in every):
        is_number = all(map(str.isdecimal, every))
        if pair and not is_number and ("" in every or section.seed == "seed"):
            why = f"'{min(every)}' in '{section.seed}' is not an integer, so it cannot pair runs"
            raise ParibusError(f"{why}; name another column with --pair, or remove --pair")
        for runs in by_label.values():
            for place, run in enumerate(runs):
                shared = seed_of(run, section)
                run.facts |= {"pair": shared} if pair else {}
                number = places[shared] if pair else place
                run.facts[section.seed] = run.facts["seed"] = number + 1.0
    own = {label: {int(seed_of(run, section)) for run in runs} for label, runs in by_label.items()}
    seeds = sorted(set().union(*own.values()))
    return seeds, {label: [seed for seed in seeds if seed not in own[label]] for label in own}


def direction(score: str) -> Better:
    """Infer from a score's name which direction is better.

    Raises ParibusError if the name does not indicate it.
    """
    if score.endswith(TO_TARGET):
        return "lower"
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", score).casefold()
    name = re.split(r"(?<![a-z])per(?![a-z])", name)[0]  # of loss_per_token the loss is meant
    words = re.findall(r"[a-z]+\d?", name)
    telling = [word for word in words if word in WORDS["lower"] + WORDS["higher"]]
    if telling and {*words}.isdisjoint(WORDS["turned"]):
        return "lower" if telling[-1] in WORDS["lower"] else "higher"
    why = f"the better direction of '{score}' is unknown; pass --better lower or --better higher"
    raise ParibusError(f"{why}, once per score", code="ambiguous")


def _spreads(by_label: Mapping[str, Sequence[Run]], score: str) -> list[float]:
    """Return the SD of each arm that has at least two finite scores."""
    values = [[run.scores.get(score, math.nan) for run in runs] for runs in by_label.values()]
    finite = [list(filter(math.isfinite, own)) for own in values]
    return [float(np.std(own, ddof=1)) for own in finite if len(own) > 1]


def digits_of(spreads: Sequence[float]) -> int:
    """Return the decimal places that show two digits of the median spread, or 4 if unknown."""
    spread = float(np.median(spreads)) if spreads else 0.0
    return min(max(1 - math.floor(math.log10(spread)), 0), 9) if 0 < spread < math.inf else 4
