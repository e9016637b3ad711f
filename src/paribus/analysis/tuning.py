"""Tuning, judged from its records: what each arm tried, what was chosen, and how sure that is.

Every arm gets the candidate whose mean of the registered metric over the tuning seeds is best. A
candidate that diverged on some seed comes after all that did on fewer; of equal ones the first
that was tried counts. Along a numeric axis it is the vertex of the parabola through the means of
that candidate and its neighbours, against the logarithm of the value, between the three. The choice
is an estimate, whose error is part of that of every difference between arms (`choice_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paribus.analysis.table import Table
from paribus.comparison import agree
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.numbers import plural
from paribus.results import Results
from paribus.results.curves import target_axis
from paribus.statistics import (
    LEAST_TUNING_SEEDS,
    Result,
    TunedArm,
    best_of,
    finite_means,
    lack_of_fit,
    parabola,
    redrawn_error,
    vertex_error,
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
FINER_GRID, MORE_TUNING_SEEDS = "a finer grid around the optimum", "more tuning seeds"


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
class Tuned(Result):
    """The tuning of a study.

    Attributes:
        metric: what chose.
        candidates: all that every arm was tried with, in order; the first has the number 1.
        points: arm by arm, each in the order of the candidates.
        chosen: the values of each arm: of its best candidate, or of the vertex beside it where the
            error is to include the choice by it.
        caveats: by arm, what its choice leaves open.
    """

    metric: Metric = field(repr=False)
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    chosen: dict[str, Candidate] = field(default_factory=dict)
    caveats: dict[str, list[str]] = field(default_factory=dict)

    def of(self, arm: str) -> list[Point]:
        """Return the tuning curve of `arm`."""
        return [point for point in self.points if point.arm == arm]

    def best(self, arm: str) -> Point:
        """Return the point that was chosen for `arm`."""
        return next(point for point in self.of(arm) if point.chosen)

    def scores(self, arm: str) -> np.ndarray:
        """Return the scores of an arm, [candidates, seeds]."""
        return np.array([list(point.values.values()) for point in self.of(arm)])

    def losses(self, arm: str) -> np.ndarray:
        """Return the same such that lower is better."""
        return lower_is_better(self.metric, self.scores(arm))

    def values_of(self, point: Point) -> Candidate:
        """Return the values that a point was trained with."""
        return self.candidates[point.candidate - 1]

    def extremes(self, arm: str, reference: str) -> tuple[float, float] | None:
        """Return the least and the largest mean change of `arm` where its reference has the same
        candidate, over seeds on which neither diverged; None without any."""
        compared = np.vectorize(self.metric.compared, otypes=[float])
        changes = finite_means(compared(self.scores(arm)) - compared(self.scores(reference)))
        known = changes[np.isfinite(changes)]
        return (float(known.min()), float(known.max())) if known.size else None


def lower_is_better(metric: Metric, scores: np.ndarray) -> np.ndarray:
    """Return scores with turned signs where higher ones are better."""
    return -scores if metric.better == "higher" else scores


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


def windows(tuned: Tuned, arm: str) -> list[tuple[list[int], list[float]]]:
    """Return rows of the best candidate of `arm` and its neighbours by value, ascending, and the
    logarithms of these values: of the chosen values of all other keys, and then of each other
    combination of these that has such rows.

    Along `vertex_key`. A best value at the edge has both neighbours on one side; one where a seed
    diverged is not a neighbour. Empty where there are no three such candidates in a row with the
    other keys as chosen.
    """
    key, losses, candidates = vertex_key(tuned), tuned.losses(arm), tuned.candidates
    rows_by_others: dict[tuple[tuple[str, Value], ...], list[int]] = {}
    for row, candidate in enumerate(candidates if key else ()):
        rest = tuple((name, value) for name, value in candidate.items() if name != key)
        rows_by_others.setdefault(rest, []).append(row)
    window_by_best = {}
    for rows in rows_by_others.values():
        best = rows[best_of(losses[rows])]
        rows.sort(key=lambda row: candidates[row][str(key)])
        diverged = [row for row in rows if not np.isfinite(losses[row]).all()]
        at = rows.index(best)
        ends = [-1, *map(rows.index, diverged), len(rows)]
        low, high = max(end for end in ends if end <= at), min(end for end in ends if end >= at)
        if high - low > 3:  # three or more between two ends
            middle = min(max(at, low + 2), high - 2)
            near = rows[middle - 1 : middle + 2]
            places = [math.log(float(candidates[row][str(key)])) for row in near]
            window_by_best[best] = near, places
    chosen = window_by_best.pop(tuned.best(arm).candidate - 1, None)
    return [] if chosen is None else [chosen, *window_by_best.values()]


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
        numbers = range(1, len(tuning.candidates) + 1)
        usable = [table.usable(candidate_arm(arm, number), tuning.select) for number in numbers]
        scores = np.array([[own.get(seed, math.nan) for seed in tuning.seeds] for own in usable])
        best = best_of(lower_is_better(metric, scores))
        for row, mean in enumerate(finite_means(scores)):
            values = dict(zip(tuning.seeds, scores[row].tolist(), strict=True))
            points.append(Point(arm, row + 1, values, float(mean), chosen=row == best))
    tuned = Tuned(metric, tuple(tuning.candidates), tuple(points))
    chosen = {arm: _chosen(study, tuned, arm) for arm in study.arms}
    caveats = {arm: lines for arm in study.arms if (lines := list(_caveats(tuned, arm)))}
    return replace(tuned, chosen=chosen, caveats=caveats)


def _chosen(study: Study, tuned: Tuned, arm: str) -> Candidate:
    values, key = dict(tuned.values_of(tuned.best(arm))), vertex_key(tuned)
    if study.inference.chooses_vertex and len(tuned.points[0].values) >= LEAST_TUNING_SEEDS:
        for rows, x in windows(tuned, arm)[:1]:
            vertex = parabola(x, tuned.losses(arm)[rows].mean(1)).vertex
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


@dataclass(frozen=True)
class Choice(Result):
    """The error that choosing the values of arms adds to a difference between them.

    Attributes:
        how: "vertex" or "redrawn" (see `paribus.statistics.choice`); empty where it is not known.
        error: SD of the difference that comes from it, as the endpoint is compared; 0 where it is
            not known. With `fit_included` it contains `lack_of_fit`.
        included: whether the test includes `error`.
        why_not: why it is not known; empty where it is.
        lack_of_fit: SD of the difference because loss curves are not parabolas; 0 where no
            parabola was fitted.
        fit_included: whether `error` contains `lack_of_fit`; not in studies registered without it.
    """

    how: str
    error: float
    included: bool
    why_not: str = ""
    lack_of_fit: float = 0.0
    fit_included: bool = False


def choice_of(
    table: Table, tuned: Tuned | None, weights: Mapping[str, float], metric: str
) -> Choice | None:
    """Return what the choice adds to a weighted sum over arms of `metric`, by arm; None where
    nothing was chosen.

    Of a metric that the tuning trials did not measure, such as the loss of a sealed text, it is
    that of the metric which chose, where both have one unit.
    """
    study, tuning = table.results.study, table.tuning
    if study.tuning is None or tuned is None or tuning is None:
        return None
    declared, n_seeds = table.results.metrics[metric], len(study.tuning.seeds)
    is_measured = _measured(tuning, metric)
    if n_seeds < LEAST_TUNING_SEEDS:
        why_not = f"{plural(n_seeds, 'tuning seed')} cannot show it, {LEAST_TUNING_SEEDS} can"
    elif declared.of_pair or target_axis(metric) is not None:
        why_not = f"{declared.label} is of pairs of trials"
    elif not is_measured and (declared.unit, declared.scale) != (
        tuned.metric.unit,
        tuned.metric.scale,
    ):
        why_not = f"the tuning trials did not measure {declared.label}"
    else:
        why_not = ""
    if why_not:
        return Choice("", 0.0, False, why_not)
    read = metric if is_measured else tuned.metric.name
    chose = [tuned.losses(arm) for arm in weights]
    if metric == tuned.metric.name and (declared.scale, declared.better) == ("linear", "lower"):
        arms = list(zip(chose, chose, strict=True))  # what chose is what is judged
    else:
        judged = [_judged(tuning, tuned, arm, declared, read) for arm in weights]
        arms = list(zip(chose, judged, strict=True))
    seed, included = study.inference.seed, study.inference.choice != "fixed"
    sides = list(weights.values())
    if study.inference.chooses_vertex:
        fitted = [_fitted(tuned, arm, *scored) for arm, scored in zip(weights, arms, strict=True)]
        if all(fitted):
            error = vertex_error(fitted, sides, seed=seed)
            fit = lack_of_fit([slices[0] for slices in fitted], sides)
            if is_fit_included := study.inference.choice == "with_lack_of_fit":
                error = math.hypot(error, fit)
            return Choice("vertex", error, included, "", fit, is_fit_included)
    error = redrawn_error(arms, sides, seed=seed)
    if not math.isfinite(error):
        return Choice("", 0.0, False, "every tuning trial of an arm diverged")
    return Choice("redrawn", error, included)


def _fitted(tuned: Tuned, arm: str, chose: np.ndarray, judged: np.ndarray) -> list[TunedArm]:
    """Return what the parabolas of an arm are fitted to, with the other keys as chosen first; empty
    where that has none."""
    tuned_arms = []
    for rows, x in windows(tuned, arm):
        ours = chose[rows]
        part = TunedArm(x, ours, ours if judged is chose else judged[rows])
        if np.isfinite(part.judged).all():
            tuned_arms.append(part)
        elif not tuned_arms:
            return []
    return tuned_arms


def _measured(tuning: Table, metric: str) -> bool:
    return any(math.isfinite(tuning.values[arm, seed, metric]) for arm, seed in tuning.events)


def _judged(tuning: Table, tuned: Tuned, arm: str, declared: Metric, read: str) -> np.ndarray:
    """[candidates, T] what an endpoint is judged by, read from the metric `read`; NaN where a trial
    diverged."""
    chose, seeds = tuned.losses(arm), list(tuned.points[0].values)
    names = [candidate_arm(arm, row + 1) for row in range(len(chose))]
    measured = np.array([[tuning.values[own, seed, read] for seed in seeds] for own in names])
    compared = np.vectorize(declared.compared, otypes=[float])(measured)
    return np.where(np.isfinite(chose) & np.isfinite(measured), compared, np.nan)
