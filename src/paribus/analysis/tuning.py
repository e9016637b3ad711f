"""Tuning, judged from its records: what each arm tried, what was chosen, and how sure that is.

Every arm gets the candidate whose mean of the registered metric over the tuning seeds is best. A
candidate that diverged on some seed comes after all that did on fewer; of equal ones the first
that was tried counts. Along a numeric axis it is the vertex of the parabola through the means of
that candidate and its neighbours, against the logarithm of the value, between the three.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paribus.analysis.sampling import registered
from paribus.analysis.table import Table
from paribus.comparison import agree, differences
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.results import Results
from paribus.statistics import (
    LEAST_TUNING_SEEDS,
    PairedContrast,
    Result,
    StabilityEvents,
    best_of,
    finite_means,
    learning_rate_sensitivity,
    paired_contrast,
    parabola,
)
from paribus.study import (
    LEARNING_RATE,
    Candidate,
    Study,
    open_edges,
    tuning_study,
    values_text,
)
from paribus.study.study import tuning_of
from paribus.study.tuning import VERTEX_DIGITS, Value
from paribus.study.tuning_study import candidate_arm

SIDES = {-1: "smallest", 1: "largest"}


@dataclass(frozen=True)
class Point(Result):
    """An arm with one candidate.

    Attributes:
        candidate: its number, from 1.
        values: by tuning seed; NaN where the trial diverged.
        mean: over the seeds that did not diverge; NaN where all did.
        chosen: whether it is the arm's best.
    """

    arm: str
    candidate: int
    values: dict[int, float]
    mean: float
    chosen: bool

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


@dataclass(frozen=True)
class Tuned(Result):
    """The tuning of a study.

    Attributes:
        metric: what chose.
        candidates: all that every arm was tried with, in order; the first has the number 1.
        points: arm by arm, each in the order of the candidates.
        shared: contrast by contrast, in the same order.
        chosen: the values of each arm: of its best candidate, or of the vertex beside it where the
            error is to include the choice by it.
        caveats: by arm, what its choice leaves open.
        sensitivities: of every arm to its learning rate, where it is tuned.
    """

    metric: Metric = field(repr=False)
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    shared: tuple[SharedContrast, ...]
    chosen: dict[str, Candidate] = field(default_factory=dict)
    caveats: dict[str, list[str]] = field(default_factory=dict)
    sensitivities: tuple[Sensitivity, ...] = ()

    def of(self, arm: str) -> list[Point]:
        """Return the tuning curve of `arm`."""
        return [point for point in self.points if point.arm == arm]

    def best(self, arm: str) -> Point:
        """Return the point that was chosen for `arm`."""
        return next(point for point in self.of(arm) if point.chosen)

    def losses(self, arm: str) -> np.ndarray:
        """Return the scores of an arm such that lower is better, [candidates, seeds]."""
        return losses_of(self.metric, self.of(arm))

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


def losses_of(metric: Metric, points: Sequence[Point]) -> np.ndarray:
    """Return the scores of points such that lower is better, [points, seeds]."""
    sign = -1.0 if metric.better == "higher" else 1.0
    return sign * np.array([list(point.values.values()) for point in points])


def vertex_key(tuned: Tuned) -> str | None:
    """Return the key along which parabolas are fitted: the learning rate, or the first of
    positive numbers that are not all whole; None without any, and of several keys that are no
    whole grid."""
    keys = list(tuned.candidates[0])
    sizes = [len({str(candidate[key]) for candidate in tuned.candidates}) for key in keys]
    if len(keys) > 1 and math.prod(sizes) != len(tuned.candidates):
        return None
    for key in sorted(keys, key=lambda key: key != LEARNING_RATE):
        values = [candidate[key] for candidate in tuned.candidates]
        # Between whole numbers alone, such as a depth, there may be nothing.
        if any(isinstance(value, float) for value in values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            for value in values
        ):
            return key
    return None


def windows(tuned: Tuned, arm: str) -> list[list[int]]:
    """Return rows of the best candidate of `arm` and its neighbours by value, ascending: of the
    chosen values of all other keys, and then of each other combination of these that has them.

    Along `vertex_key`. A best value at the edge has both neighbours on one side; one where a seed
    diverged is not a neighbour. Empty where there are no three such candidates in a row with the
    other keys as chosen.
    """
    key, losses = vertex_key(tuned), tuned.losses(arm)
    if key is None:
        return []
    rows_by_others: dict[tuple[tuple[str, Value], ...], list[int]] = {}
    for row, candidate in enumerate(tuned.candidates):
        rest = tuple((name, value) for name, value in candidate.items() if name != key)
        rows_by_others.setdefault(rest, []).append(row)
    window_by_best = {}
    for rows in rows_by_others.values():
        best = rows[best_of(losses[rows])]
        rows.sort(key=lambda row: tuned.candidates[row][key])
        diverged = [row for row in rows if not np.isfinite(losses[row]).all()]
        at = rows.index(best)
        ends = [-1, *map(rows.index, diverged), len(rows)]
        low, high = max(end for end in ends if end <= at), min(end for end in ends if end >= at)
        if high - low > 3:  # three or more between two ends
            middle = min(max(at, low + 2), high - 2)
            window_by_best[best] = rows[middle - 1 : middle + 2]
    chosen = window_by_best.pop(tuned.best(arm).candidate - 1, None)
    return [] if chosen is None else [chosen, *window_by_best.values()]


def place(tuned: Tuned, row: int) -> float:
    """Return the logarithm of the value of a candidate along which its parabola is fitted."""
    key = vertex_key(tuned)
    assert key is not None
    return math.log(float(tuned.candidates[row][key]))


def tuned_before(table: Table) -> Tuned | None:
    """Return the tuning behind `table`; None where nothing was chosen."""
    return None if table.tuning is None else tuned_in(table.results.study, table.tuning)


def tuned_in(study: Study, table: Table) -> Tuned:
    """Return the tuning whose trials are in `table`, which are those that the plan asks for.

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
    points, metric = [], results.metrics[tuning.select]
    for arm in study.arms:
        own = []
        for number in range(1, len(tuning.candidates) + 1):
            usable = table.usable(candidate_arm(arm, number), tuning.select)
            values = {seed: usable.get(seed, math.nan) for seed in tuning.seeds}
            own.append(Point(arm, number, values, _mean(values), chosen=False))
        best = best_of(losses_of(metric, own))
        points += [replace(point, chosen=row == best) for row, point in enumerate(own)]
    shared = tuple(_shared(study, points, metric))
    tuned = Tuned(metric, tuple(tuning.candidates), tuple(points), shared)
    chosen = {arm: _chosen(study, tuned, arm) for arm in study.arms}
    caveats = {arm: lines for arm in study.arms if (lines := list(_caveats(tuned, arm)))}
    return replace(tuned, chosen=chosen, caveats=caveats)


def _mean(values: Mapping[int, float]) -> float:
    return float(finite_means(np.array([list(values.values())]))[0])


def _shared(study: Study, points: Sequence[Point], metric: Metric) -> Iterator[SharedContrast]:
    by_key = {(point.arm, point.candidate): point.values for point in points}
    for arm, reference in study.contrasts:
        for candidate in (point.candidate for point in points if point.arm == arm):
            ours, theirs = by_key[arm, candidate], by_key[reference, candidate]
            differences = {
                seed: metric.compared(value) - metric.compared(theirs[seed])
                for seed, value in ours.items()
                if math.isfinite(value) and math.isfinite(theirs[seed])
            }
            mean = _mean(differences) if differences else math.nan
            yield SharedContrast(arm, reference, candidate, differences, mean)


def _chosen(study: Study, tuned: Tuned, arm: str) -> Candidate:
    values, key = dict(tuned.values_of(tuned.best(arm))), vertex_key(tuned)
    if study.inference.chooses_vertex and len(tuned.points[0].values) >= LEAST_TUNING_SEEDS:
        for rows in windows(tuned, arm)[:1]:
            means = tuned.losses(arm)[rows].mean(1)
            vertex = parabola([place(tuned, row) for row in rows], means).vertex
            values[str(key)] = float(f"{math.exp(vertex):.{VERTEX_DIGITS}g}")
    return values


def _caveats(tuned: Tuned, arm: str) -> Iterator[str]:
    """Yield what the choice leaves open."""
    best = tuned.best(arm)
    values = tuned.values_of(best)
    if lost := best.n_diverged:
        yield (
            f"every value tried diverged on a tuning seed; the best did on {lost} of "
            f"{len(best.values)}"
        )
    outermost = [
        f"the {SIDES[side]} value tried ({values_text({key: values[key]})})"
        for key, side in open_edges(tuned.candidates, values)
    ]
    if outermost:
        yield f"the best is {' and '.join(outermost)}, so a better one may lie beyond"


def tuning_record(study: Study, results: Results) -> dict[str, Any]:
    """Return what tuning.json holds: every trial, and the choice of each arm. `results` are the
    tuning trials.

    Raises ParibusError as `tuned_in` does.
    """
    tuning, tuned = tuning_of(study), tuned_in(study, Table.of(results))
    return {
        "select": tuning.select,
        "better": tuned.metric.better,
        "seeds": list(tuning.seeds),
        "candidates": [dict(candidate) for candidate in tuned.candidates],
        "root": results.root,
        "trials": [
            {
                "arm": point.arm,
                "candidate": point.candidate,
                "seed": seed,
                "value": value if math.isfinite(value) else None,
            }
            for point in tuned.points
            for seed, value in point.values.items()
        ],
        "chosen": {
            arm: {"candidate": tuned.best(arm).candidate, "values": values}
            for arm, values in tuned.chosen.items()
        },
    }


def values_of(record: Mapping[str, Any]) -> dict[str, Candidate]:
    """Return what was chosen for each arm, as tuning.json says."""
    return {arm: choice["values"] for arm, choice in record["chosen"].items()}


def differing_from(stated: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Return the keys of a tuning.json that say otherwise than `fresh`."""
    return list(differences({key: stated.get(key) for key in fresh}, fresh))


def sensitivities(
    study: Study, tuned: Tuned, events: Mapping[tuple[str, int], StabilityEvents]
) -> list[Sensitivity]:
    """Return the learning-rate sensitivity of every arm over the shared rates; [] unless the
    loss was tuned by rates that leave the first loss unchanged. `events` are of tuning trials."""
    tuning = tuning_of(study)
    if tuning.select != study.format.loss:
        return []
    if LEARNING_RATE not in tuning.keys or any(k[:9] != "training." for k in tuning.keys):
        return []
    values: dict[str, dict[int, float]] = {}
    for arm in study.arms:
        best = tuned.values_of(tuned.best(arm))
        rate = {LEARNING_RATE: best[LEARNING_RATE]}
        own = [point for point in tuned.of(arm) if tuned.values_of(point) | rate == best]
        if len(own) < 2:  # listed combinations may share no other key
            return []
        name = candidate_arm(arm, 1)
        values[arm] = {
            seed: learning_rate_sensitivity(
                [point.values[seed] for point in own], events[name, seed].initial_loss
            )
            for seed in tuning.seeds
            if (name, seed) in events
        }
    references = {arm: study.reference(arm) for arm in values}
    return [
        Sensitivity(arm, base, values[arm], _paired(study, values.get(base or "", {}), values[arm]))
        for arm, base in references.items()
    ]


def _paired(
    study: Study, theirs: Mapping[int, float], ours: Mapping[int, float]
) -> PairedContrast | None:
    """Return the inference over seeds at which both are finite; None for fewer than two."""
    pairs = [(theirs.get(seed, math.nan), value) for seed, value in ours.items()]
    pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
    if len(pairs) < 2:
        return None
    return paired_contrast(*zip(*pairs, strict=True), **registered(study))


def why_not_these_values(study: Study, tuned: Tuned | None) -> str:
    """Why the values of the study's arms are not those that its tuning trials choose; empty where
    they are, and where nothing was chosen."""
    if study.tuning is None or not study.tuning.chosen:
        return ""
    if tuned is None:
        return "the tuning trials that chose the values of the arms are not there"
    for arm, values in study.tuning.chosen.items():
        best = tuned.chosen.get(arm)
        if best is None or not agree(values, best):
            text = values_text(best) if best else "nothing"
            return f"{arm} has {values_text(values)}, and the tuning trials choose {text}"
    return ""
