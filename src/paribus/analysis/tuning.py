"""Tuning, judged from its records: what each arm tried, what was chosen, and how sure that is.

Every arm gets the candidate whose mean of the registered metric over the tuning seeds is best. A
candidate that diverged on some seed comes after all that did on fewer; of equal ones the first
that was tried counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paribus.analysis.sampling import registered
from paribus.analysis.table import Table
from paribus.comparison import agree, differences
from paribus.errors import ParibusError
from paribus.metric import Better, Metric
from paribus.results import Results
from paribus.statistics import (
    LEAST_TUNING_SEEDS,
    PairedContrast,
    Result,
    best_of,
    finite_means,
    learning_rate_sensitivity,
    paired_contrast,
    paired_t,
    parabola,
)
from paribus.study import (
    LEARNING_RATE,
    Candidate,
    Study,
    at_edges,
    open_edges,
    tuning_study,
    values_text,
)
from paribus.study.study import tuning_of
from paribus.study.tuning import VERTEX_DIGITS, Value
from paribus.study.tuning_study import candidate_arm

RULE = (
    "the candidate with the best mean over the tuning seeds; one that diverged on a seed comes "
    "after those that diverged on fewer, and of equal ones the first tried counts"
)
VERTEX = (
    "along a numeric axis the vertex of the parabola through the mean of that candidate and those "
    "of its neighbours, against the logarithm of the value, between the three"
)
SIDES = {-1: "smallest", 1: "largest"}


@dataclass(frozen=True)
class Tried:
    """The tuning trials.

    Attributes:
        candidates: all that every arm was tried with, in order; records count them from 1.
        seeds: the tuning seeds.
        scores: {arm: [candidates, seeds] of the metric that chooses}, NaN where a trial diverged.
        better: its direction.
        initial: {arm: {seed: loss before the first update}}, which no learning rate changes.
    """

    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    scores: dict[str, np.ndarray]
    better: Better
    initial: dict[str, dict[int, float]]

    def losses(self, arm: str) -> np.ndarray:
        """Return the scores of an arm such that lower is better, [candidates, seeds]."""
        return -self.scores[arm] if self.better == "higher" else self.scores[arm]

    def best(self, arm: str) -> int:
        """Return the row of the best candidate of an arm."""
        return best_of(self.losses(arm))

    def by_seed(self, arm: str, row: int) -> dict[int, float]:
        """Return the scores of an arm with one candidate."""
        return dict(zip(self.seeds, self.scores[arm][row].tolist(), strict=True))


def vertex_key(tried: Tried) -> str | None:
    """Return the key along which parabolas are fitted: the learning rate, or the first of
    positive numbers that are not all whole; None without any, and of several keys that are no
    whole grid."""
    keys = list(tried.candidates[0])
    sizes = [len({str(candidate[key]) for candidate in tried.candidates}) for key in keys]
    if len(keys) > 1 and math.prod(sizes) != len(tried.candidates):
        return None
    for key in sorted(keys, key=lambda key: key != LEARNING_RATE):
        values = [candidate[key] for candidate in tried.candidates]
        # Between whole numbers alone, such as a depth, there may be nothing.
        if any(isinstance(value, float) for value in values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            for value in values
        ):
            return key
    return None


def windows(tried: Tried, arm: str) -> list[list[int]]:
    """Return the best candidate of `arm` and its neighbours by value, ascending: of the chosen
    values of all other keys, and then of each other combination of these that has them.

    Along `vertex_key`. A best value at the edge has both neighbours on one side; one where a seed
    diverged is not a neighbour. Empty where there are no three such candidates in a row with the
    other keys as chosen.
    """
    key, losses = vertex_key(tried), tried.losses(arm)
    if key is None:
        return []
    rows_by_others: dict[tuple[tuple[str, Value], ...], list[int]] = {}
    for row, candidate in enumerate(tried.candidates):
        rest = tuple((name, value) for name, value in candidate.items() if name != key)
        rows_by_others.setdefault(rest, []).append(row)
    window_by_best = {}
    for rows in rows_by_others.values():
        best = rows[best_of(losses[rows])]
        rows.sort(key=lambda row: tried.candidates[row][key])
        diverged = [row for row in rows if not np.isfinite(losses[row]).all()]
        at = rows.index(best)
        ends = [-1, *map(rows.index, diverged), len(rows)]
        low, high = max(end for end in ends if end <= at), min(end for end in ends if end >= at)
        if high - low > 3:  # three or more between two ends
            middle = min(max(at, low + 2), high - 2)
            window_by_best[best] = rows[middle - 1 : middle + 2]
    chosen = window_by_best.pop(tried.best(arm), None)
    return [] if chosen is None else [chosen, *window_by_best.values()]


def place(tried: Tried, row: int) -> float:
    """Return the logarithm of the value of a candidate along which its parabola is fitted."""
    key = vertex_key(tried)
    assert key is not None
    return math.log(float(tried.candidates[row][key]))


def chosen_values(study: Study, tried: Tried) -> dict[str, Candidate]:
    """Return what each arm is judged at: its best candidate, or the vertex beside it where the
    error is to include the choice by it."""
    values_by_arm = {arm: dict(tried.candidates[tried.best(arm)]) for arm in tried.scores}
    key = vertex_key(tried)
    if not study.inference.chooses_vertex or len(tried.seeds) < LEAST_TUNING_SEEDS:
        return values_by_arm
    for arm, values in values_by_arm.items():
        for rows in windows(tried, arm)[:1]:
            means = tried.losses(arm)[rows].mean(1)
            vertex = parabola([place(tried, row) for row in rows], means).vertex
            values[str(key)] = float(f"{math.exp(vertex):.{VERTEX_DIGITS}g}")
    return values_by_arm


def tried_before(table: Table) -> Tried | None:
    """Return the tuning trials behind `table`; None where nothing was chosen."""
    return None if table.tuning is None else tried_in(table.results.study, table.tuning)


def tried_in(study: Study, table: Table) -> Tried:
    """Return the tuning trials in `table`, checked to be those that the plan asks for.

    Raises ParibusError if they are of another plan, or if one of them is not finished.
    """
    tuning, results = tuning_of(study), table.results
    if not tuning_study(study).is_same(results.study):
        raise ParibusError(
            f"{results.path} holds other tuning trials than the plan asks for; restore it, or "
            "choose another folder with --results"
        )
    if results.unfinished:
        raise ParibusError(
            f"{results.path}: tuning trial {results.unfinished[0].label} is not finished, and "
            "arms are compared at equal cost; run the study again to continue"
        )
    scores, initial = {}, {}
    for arm in study.arms:
        names = [candidate_arm(arm, number + 1) for number in range(len(tuning.candidates))]
        usable = [table.usable(name, tuning.select) for name in names]
        scores[arm] = np.array(
            [[own.get(seed, math.nan) for seed in tuning.seeds] for own in usable]
        )
        events = {seed: table.events.get((names[0], seed)) for seed in tuning.seeds}
        initial[arm] = {seed: seen.initial_loss for seed, seen in events.items() if seen}
    better = results.metrics[tuning.select].better
    return Tried(tuple(tuning.candidates), tuple(tuning.seeds), scores, better, initial)


def tuning_record(study: Study, results: Results) -> dict[str, Any]:
    """Return what tuning.json holds: every trial, the choice of each arm, its rule, and what is
    open. `results` are the tuning trials.

    Raises ParibusError as `tried_in` does.
    """
    tuning, tried = tuning_of(study), tried_in(study, Table.of(results))
    return {
        "select": tuning.select,
        "better": tried.better,
        "rule": f"{RULE}; {VERTEX}" if study.inference.chooses_vertex else RULE,
        "seeds": list(tuning.seeds),
        "candidates": [dict(candidate) for candidate in tried.candidates],
        "root": results.root,
        "trials": [
            {
                "arm": arm,
                "candidate": row + 1,
                "seed": seed,
                "value": value if math.isfinite(value) else None,
            }
            for arm in tried.scores
            for row in range(len(tried.candidates))
            for seed, value in tried.by_seed(arm, row).items()
        ],
        "chosen": {
            arm: {"candidate": tried.best(arm) + 1, "values": values}
            for arm, values in chosen_values(study, tried).items()
        },
        "caveats": caveats(tried),
    }


def values_of(record: Mapping[str, Any]) -> dict[str, Candidate]:
    """Return what was chosen for each arm, as tuning.json says."""
    return {arm: choice["values"] for arm, choice in record["chosen"].items()}


def differing_from(stated: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Return the keys of a tuning.json that say otherwise than `fresh`, whatever its sentences."""
    return list(differences(stated, fresh, words=("caveats", "rule")))


def caveats(tried: Tried) -> dict[str, list[str]]:
    """Return what the choice leaves open, by arm, a line each."""
    lines_by_arm = {}
    for arm in tried.scores:
        row, lines = tried.best(arm), []
        best = tried.candidates[row]
        if lost := int(np.isnan(tried.scores[arm][row]).sum()):
            lines.append(
                f"every value tried diverged on a tuning seed; the best did on {lost} of "
                f"{len(tried.seeds)}"
            )
        outermost = [
            f"the {SIDES[side]} value tried ({values_text({key: best[key]})})"
            for key, side in open_edges(tried.candidates, best)
        ]
        if outermost:
            lines.append(f"the best is {' and '.join(outermost)}, so a better one may lie beyond")
        if lines:
            lines_by_arm[arm] = lines
    return lines_by_arm


@dataclass(frozen=True)
class Sensitivity(Result):
    """Learning-rate sensitivity of an arm (Wortsman et al. 2023), in nats/token: over the rates
    that it was tuned with, any other key as it was chosen.

    Attributes:
        values: by tuning seed; NaN where no rate of the seed learned anything, which leaves the
            seed out of `paired`.
        paired: against its reference at the same tuning seeds; None for fewer than two.
    """

    arm: str
    reference: str | None
    values: dict[int, float]
    paired: PairedContrast | None


def sensitivities(study: Study, tried: Tried) -> list[Sensitivity]:
    """Return the learning-rate sensitivity of every arm over the shared rates; [] unless the
    loss was tuned by rates that leave the first loss unchanged."""
    tuning = study.tuning
    if tuning is None or LEARNING_RATE not in tuning.keys or tuning.select != study.format.loss:
        return []
    if not all(key.startswith("training.") for key in tuning.keys):
        return []
    values: dict[str, dict[int, float]] = {}
    for arm in study.arms:
        best = tried.candidates[tried.best(arm)]
        rows = [
            row
            for row, candidate in enumerate(tried.candidates)
            if candidate | {LEARNING_RATE: best[LEARNING_RATE]} == best
        ]
        if len(rows) < 2:  # listed combinations may share no other key
            return []
        final = dict(zip(tried.seeds, tried.scores[arm][rows].T, strict=True))
        values[arm] = {
            seed: learning_rate_sensitivity(final[seed], initial)
            for seed, initial in tried.initial[arm].items()
        }
    by_arm = []
    for arm, ours in values.items():
        reference = study.reference(arm)
        pairs = _finite_pairs(values[reference] if reference else {}, ours)
        paired = None
        if len(pairs) > 1:
            paired = paired_contrast(*zip(*pairs, strict=True), **registered(study))
        by_arm.append(Sensitivity(arm, reference, ours, paired))
    return by_arm


def _finite_pairs(
    theirs: Mapping[int, float], ours: Mapping[int, float]
) -> list[tuple[float, float]]:
    """Return both values of each seed at which both are finite."""
    pairs = [(theirs.get(seed, math.nan), value) for seed, value in ours.items()]
    return [pair for pair in pairs if all(map(math.isfinite, pair))]


@dataclass(frozen=True)
class Point(Result):
    """An arm with one candidate.

    Attributes:
        candidate: its number, from 1.
        values: by tuning seed; NaN where the trial diverged.
        mean: over the seeds that did not diverge; NaN where all did.
        chosen: whether it is the arm's best.
        edges: of the chosen one, the keys with an outermost value of those tried, and where: -1 is
            the smallest, 1 the largest.
    """

    arm: str
    candidate: int
    values: dict[int, float]
    mean: float
    chosen: bool
    edges: dict[str, int] = field(default_factory=dict)

    @property
    def n_diverged(self) -> int:
        """On how many tuning seeds it diverged."""
        return sum(not math.isfinite(value) for value in self.values.values())


@dataclass(frozen=True)
class SharedContrast(Result):
    """An arm minus its reference where both have the same candidate.

    Attributes:
        differences: as the metric is compared, by tuning seed on which neither diverged.
        mean: of these; NaN where there is none.
    """

    arm: str
    reference: str
    candidate: int
    differences: dict[int, float]
    mean: float


@dataclass(frozen=True)
class Tuned(Result):
    """The tuning of a study.

    Attributes:
        metric: what chose.
        candidates: what every arm was tried with; the first has the number 1.
        points: arm by arm, each in the order of the candidates.
        shared: contrast by contrast, in the same order.
        chosen: the values of each arm: of its best candidate, or of the vertex beside it.
        caveats: by arm, what its choice leaves open.
        sensitivities: of every arm to its learning rate, where it is tuned.
    """

    metric: Metric = field(repr=False)
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    shared: tuple[SharedContrast, ...]
    chosen: dict[str, Candidate]
    caveats: dict[str, list[str]]
    sensitivities: tuple[Sensitivity, ...] = ()

    def of(self, arm: str) -> list[Point]:
        """Return the tuning curve of `arm`."""
        return [point for point in self.points if point.arm == arm]

    def best(self, arm: str) -> Point:
        """Return the point that was chosen for `arm`."""
        return next(point for point in self.of(arm) if point.chosen)

    def best_among(self, points: Sequence[Point]) -> Point:
        """Return the best of some points, by the rule that chose."""
        sign = -1.0 if self.metric.better == "higher" else 1.0
        return points[best_of(sign * np.array([list(p.values.values()) for p in points]))]

    def values_of(self, point: Point | SharedContrast) -> Candidate:
        """Return the values that a point was trained with."""
        return self.candidates[point.candidate - 1]

    def extremes(self, arm: str) -> tuple[SharedContrast, SharedContrast] | None:
        """Return the least and the largest change of `arm` at a shared candidate; None without
        any."""
        finite = [c for c in self.shared if c.arm == arm and math.isfinite(c.mean)]
        if not finite:
            return None
        return min(finite, key=lambda c: c.mean), max(finite, key=lambda c: c.mean)

    def values_differ_untold(self, arm: str, reference: str, alpha: float) -> bool:
        """Return whether the two have different values that the tuning seeds do not tell apart."""
        ours, theirs = self.best(arm).candidate, self.best(reference).candidate
        if ours == theirs:
            return False
        prefers = self._prefers(arm, ours, theirs, alpha)
        return not (prefers and self._prefers(reference, theirs, ours, alpha))

    def _prefers(self, arm: str, own: int, theirs: int, alpha: float) -> bool:
        """Return whether an arm is better with candidate `own`, beyond chance."""
        values = {point.candidate: list(point.values.values()) for point in self.of(arm)}
        sign = -1.0 if self.metric.better == "higher" else 1.0
        worse = sign * np.subtract(values[theirs], values[own])
        if (np.isfinite(values[own]) & ~np.isfinite(values[theirs])).any():
            return True
        worse = worse[np.isfinite(worse)]
        if len(worse) < 2:
            return False
        test = paired_t(worse)
        return test.mean > 0 and test.p_value() <= alpha


def tuned(table: Table, tried: Tried | None) -> Tuned | None:
    """Return the tuning behind `table`, in `tried`; None where nothing was chosen."""
    study = table.results.study
    if tried is None or table.tuning is None:
        return None
    points = []
    for arm, scores in tried.scores.items():
        for row, mean in enumerate(finite_means(scores).tolist()):
            is_best = row == tried.best(arm)
            edges = dict(at_edges(tried.candidates, tried.candidates[row])) if is_best else {}
            points.append(Point(arm, row + 1, tried.by_seed(arm, row), mean, is_best, edges))
    metric = table.tuning.results.metrics[tuning_of(study).select]
    return Tuned(
        metric=metric,
        candidates=tried.candidates,
        points=tuple(points),
        shared=tuple(_shared(study, tried, metric)),
        chosen=chosen_values(study, tried),
        caveats=caveats(tried),
        sensitivities=tuple(sensitivities(study, tried)),
    )


def why_not_these_values(study: Study, tuning: Tuned | None) -> str:
    """Why the values of the study's arms are not those that its tuning trials choose; empty where
    they are, and where nothing was chosen."""
    if study.tuning is None or not study.tuning.chosen:
        return ""
    if tuning is None:
        return "the tuning trials that chose the values of the arms are not there"
    for arm, values in study.tuning.chosen.items():
        best = tuning.chosen.get(arm)
        if best is None or not agree(values, best):
            text = values_text(best) if best else "nothing"
            return f"{arm} has {values_text(values)}, and the tuning trials choose {text}"
    return ""


def _shared(study: Study, tried: Tried, metric: Metric) -> Iterator[SharedContrast]:
    for arm, reference in study.contrasts:
        compared = (np.vectorize(metric.compared)(tried.scores[name]) for name in (arm, reference))
        ours, theirs = compared
        changes = ours - theirs
        for row, mean in enumerate(finite_means(changes).tolist()):
            by_seed = zip(tried.seeds, changes[row].tolist(), strict=True)
            differences = {seed: change for seed, change in by_seed if math.isfinite(change)}
            yield SharedContrast(arm, reference, row + 1, differences, mean)
