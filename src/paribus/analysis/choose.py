"""The choice among tuning trials: a pure function of the study and of their records.

Every arm gets the candidate whose mean of the registered metric over the tuning seeds is best. A
candidate that diverged on some seed comes after all that did on fewer; of equal ones the first
that was tried counts. Where the grid may grow, a best value at its edge asks for another round of
trials, for all arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paribus.analysis.table import Table
from paribus.errors import ParibusError
from paribus.metric import Better
from paribus.results import Results
from paribus.study import (
    Candidate,
    Study,
    Tuning,
    at_edges,
    further_candidates,
    in_words,
    tuning_study,
)
from paribus.study.tuning_study import FOLDER, candidate_arm

RULE = (
    "the candidate with the best mean over the tuning seeds; one that diverged on a seed comes "
    "after those that diverged on fewer, and of equal ones the first tried counts"
)
SIDES = {-1: "smallest", 1: "largest"}
Scores = dict[str, dict[int, dict[int, float]]]
"""{arm: {number of the candidate: {seed: value}}}, NaN where a trial diverged."""


@dataclass(frozen=True)
class Tried:
    """The tuning trials so far.

    Attributes:
        candidates: all that every arm was tried with, in order; the first has the number 1.
        sizes: how many of them each round added.
        scores: their values of the metric that chooses.
        better: its direction.
        initial: {arm: {seed: loss before the first update}}, which no learning rate changes.
    """

    candidates: tuple[Candidate, ...]
    sizes: tuple[int, ...]
    scores: Scores
    better: Better
    initial: dict[str, dict[int, float]]

    @property
    def chosen(self) -> dict[str, int]:
        """The number of each arm's best candidate."""
        return {arm: choose(scores, self.better) for arm, scores in self.scores.items()}


def choose(scores: Mapping[int, Mapping[int, float]], better: Better) -> int:
    """The number of the best candidate of one arm; `scores` are values by seed."""
    sign = -1.0 if better == "higher" else 1.0

    def rank(number: int) -> tuple[int, float, int]:
        values = list(scores[number].values())
        finite = [value for value in values if math.isfinite(value)]
        mean = sign * math.fsum(finite) / len(finite) if finite else math.inf
        return len(values) - len(finite), mean, number

    return min(scores, key=rank)


def next_candidates(study: Study, tried: Tried | None) -> list[Candidate]:
    """What every arm is tried with next; empty where the tuning is done."""
    tuning = _plan(study)
    if tried is None:
        return tuning.candidates
    if tuning.edge != "extend" or len(tried.sizes) > tuning.extensions:
        return []
    edges: dict[tuple[str, int], None] = {}
    for number in tried.chosen.values():
        edges |= dict.fromkeys(at_edges(tried.candidates, tried.candidates[number - 1]))
    new = further_candidates(tuning, tried.candidates, edges)
    try:
        tuning_study(study, new, len(tried.candidates) + 1) if new else None
    except ParibusError:
        return []  # beyond what some arm can be trained with: the edge is a caveat
    return new


def tried_in(study: Study, rounds: Sequence[Results]) -> Tried | None:
    """The trials of these rounds, each checked to be the one that the rounds before ask for.

    Raises ParibusError where a round is another one, or has trials that are not finished.
    """
    tried: Tried | None = None
    tuning = _plan(study)
    for results in rounds:
        candidates = next_candidates(study, tried)
        before = tried or Tried((), (), {arm: {} for arm in study.arms}, "lower", {})
        first = len(before.candidates) + 1
        wanted = tuning_study(study, candidates, first) if candidates else None
        if wanted is None or not wanted.is_same(results.study):
            raise ParibusError(
                f"{results.path} holds other tuning trials than the plan asks for; restore it, or "
                "choose another folder with --results"
            )
        if results.unfinished:
            raise ParibusError(
                f"{results.path}: tuning trial {results.unfinished[0].label} is not finished, and "
                "arms are compared at equal cost; run the study again to continue"
            )
        table = Table.of(results)
        scores = {arm: dict(by_number) for arm, by_number in before.scores.items()}
        for number in range(first, first + len(candidates)):
            for arm in study.arms:
                found = table.usable(candidate_arm(arm, number), tuning.select)
                scores[arm][number] = {seed: found.get(seed, math.nan) for seed in tuning.seeds}
        better = results.metrics[tuning.select].better
        tried = Tried(
            (*before.candidates, *candidates),
            (*before.sizes, len(candidates)),
            scores,
            better,
            before.initial or _initial(study, table),
        )
    return tried


def _initial(study: Study, table: Table) -> dict[str, dict[int, float]]:
    """The first loss of every arm by tuning seed, with the first candidate."""
    return {
        arm: {
            seed: table.events[candidate_arm(arm, 1), seed].initial_loss
            for seed in _plan(study).seeds
        }
        for arm in study.arms
    }


def _plan(study: Study) -> Tuning:
    if study.tuning is None:
        raise ParibusError(f"study '{study.name}' tunes nothing; it has no [tuning]")
    return study.tuning


def tuning_record(study: Study, rounds: Sequence[Results]) -> dict[str, Any]:
    """What tuning.json holds: every trial, the choice of each arm, its rule, and what is open.

    Raises ParibusError where the tuning is not done.
    """
    tuning, tried = _plan(study), tried_in(study, rounds)
    if tried is None or next_candidates(study, tried):
        raise ParibusError(f"the tuning of '{study.name}' is not finished; run the study again")
    return {
        "select": tuning.select,
        "better": tried.better,
        "rule": RULE,
        "seeds": list(tuning.seeds),
        "candidates": [dict(candidate) for candidate in tried.candidates],
        "rounds": [
            {"folder": f"{FOLDER}/{number}", "candidates": size, "root": results.root}
            for number, (size, results) in enumerate(zip(tried.sizes, rounds, strict=True), 1)
        ],
        "trials": [
            {
                "arm": arm,
                "candidate": number,
                "seed": seed,
                "value": value if math.isfinite(value) else None,
            }
            for arm, by_number in tried.scores.items()
            for number, by_seed in by_number.items()
            for seed, value in by_seed.items()
        ],
        "chosen": {
            arm: {"candidate": number, "values": dict(tried.candidates[number - 1])}
            for arm, number in tried.chosen.items()
        },
        "caveats": caveats(tried),
    }


def caveats(tried: Tried) -> dict[str, list[str]]:
    """What the choice leaves open, by arm, a line each."""
    found: dict[str, list[str]] = {}
    for arm, number in tried.chosen.items():
        best = tried.candidates[number - 1]
        values = tried.scores[arm][number].values()
        if lost := sum(not math.isfinite(value) for value in values):
            found.setdefault(arm, []).append(
                f"every value tried of {arm} diverged on a tuning seed; its best did on {lost} of "
                f"{len(values)}"
            )
        outermost = [
            f"the {SIDES[side]} value tried ({in_words({key: best[key]})})"
            for key, side in at_edges(tried.candidates, best)
        ]
        if outermost:
            found.setdefault(arm, []).append(
                f"the best of {arm} is {' and '.join(outermost)}, so a better one may lie beyond"
            )
    return found
