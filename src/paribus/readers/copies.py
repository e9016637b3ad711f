"""Runs that several files hold: a log and its standard output, checkpoints, equal files."""

from __future__ import annotations

import filecmp
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from paribus.readers.port import Run, seed_in
from paribus.readers.values import LEAST_OF_A_CURVE

STATE, CHECKPOINT = "trainer_state.json", re.compile(r"checkpoint-\d+")
IDENTITY = ("arm", "seed", "source_digest", "commit")  # facts in which no two copies differ

Arm = Callable[[Run], str]
Points = Sequence[tuple[float, float]]


def counted_once(
    runs: Iterable[Run], arm: Arm = lambda run: ""
) -> tuple[list[Run], list[tuple[str, str]]]:
    """Return the runs without copies, and for each copy its source and that of the other.

    A copy has equal values at all its steps, or is in a file of equal bytes, and does not differ in
    arm, seed or source: standard output beside the log, an earlier checkpoint of the same run.
    Trials of one file that has no times are runs, whatever their values. `arm` returns the arm if a
    fact does not. The longer run stays, and takes the facts that only the other has. If training
    times differ, a program ran twice with equal results: that is for the judge to see.
    """
    kept: list[Run] = []
    copies: list[tuple[str, str]] = []
    places: dict[object, list[int]] = defaultdict(list)
    for run in runs:
        keys = [(arm(run), *key) for key in _beginnings(run)]
        candidates = dict.fromkeys(place for key in keys for place in places[key])
        place = next((p for p in candidates if _is_copy(kept[p], run)), len(kept))
        if place == len(kept):
            kept.append(run)
        else:
            shorter, longer = run, kept[place]
            if sum(map(len, run.curves.values())) > sum(map(len, longer.curves.values())):
                shorter, longer = longer, run
            longer.facts = shorter.facts | longer.facts
            copies.append((shorter.source, longer.source))
            kept[place] = longer
        for key in keys:
            places[key].append(place)
    return kept, copies


def drop_shared_seed(runs: Sequence[Run], arm: Arm) -> None:
    """Remove the seed that all runs have from one folder above them, such as `seed42_exps/`, if an
    arm has several runs: it tells none of them apart."""
    if len(runs) < 2 or max(Counter(map(arm, runs)).values()) < 2:
        return
    seed = seed_in(os.path.commonpath([os.path.abspath(run.path) for run in runs]))
    if seed is not None and all(run.facts.get("seed") == seed == seed_in(run.path) for run in runs):
        for run in runs:
            del run.facts["seed"]


def _beginnings(run: Run) -> Iterator[tuple[object, ...]]:
    """Yield what copies of a run have in common: the beginnings of curves, or the size and scores
    of a file without curves; and the folder of its checkpoints."""
    long = {name: curve for name, curve in run.curves.items() if len(curve) >= LEAST_OF_A_CURVE}
    for name, curve in long.items():
        yield (name, *_comparable(curve[:LEAST_OF_A_CURVE]))
    if not long and os.path.isfile(run.path):
        number = run.source.removeprefix(run.path)
        scores = _comparable([(0.0, value) for value in run.scores.values()])
        yield (os.path.getsize(run.path), number, *run.scores, *scores)
    if folder := _training_folder(run):
        yield (folder, STATE)


def _is_copy(first: Run, second: Run) -> bool:
    """Return whether each curve of one run is the beginning of the other's."""
    is_one_file = first.path == second.path
    if is_one_file and first.path and not all("train_seconds" in r.facts for r in (first, second)):
        return False
    if first.items != second.items:  # from files beside them
        return False
    shared = first.curves.keys() & second.curves.keys()
    has_curve = any(len(curve) >= LEAST_OF_A_CURVE for curve in second.curves.values())
    folder = _training_folder(first)
    is_one_training = bool(shared and folder) and folder == _training_folder(second)
    is_known = has_curve or is_one_training
    if not is_known and (is_one_file or not filecmp.cmp(first.path, second.path, shallow=False)):
        return False
    pairs = [(first.curves[name], second.curves[name]) for name in shared]
    signs = {(len(a) > len(b)) - (len(a) < len(b)) for a, b in pairs} - {0}
    identity = IDENTITY if signs else (*IDENTITY, "train_seconds")
    differs = any(
        first.facts[name] != second.facts[name]
        for name in identity
        if name in first.facts and name in second.facts
    )
    return (
        len(signs) < 2
        and not differs
        and all(_comparable(a[: len(b)]) == _comparable(b[: len(a)]) for a, b in pairs)
    )


def _training_folder(run: Run) -> str:
    """Return the folder of a run whose checkpoints each hold its log so far; empty if none is."""
    folder, name = os.path.split(run.path)
    if name != STATE:
        return ""
    return os.path.dirname(folder) if CHECKPOINT.fullmatch(os.path.basename(folder)) else folder


def _comparable(points: Points) -> list[tuple[float, float | None]]:
    """Return points with None in place of NaN, which is not equal to itself."""
    return [(step, None if math.isnan(value) else value) for step, value in points]
