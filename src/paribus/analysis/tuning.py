"""Results of hyperparameter tuning: scores, selected values, and the error of the selection.

A candidate is a combination of hyperparameter values. For each arm, the candidate with the best
mean score over the tuning seeds is selected. Candidates that diverged on fewer seeds rank higher,
and ties are resolved in favour of the first candidate. For a numeric hyperparameter, a parabola is
then fitted to the best candidate and its neighbours, as a function of the log value, and its vertex
is selected. The selection is an estimate, so its error is included in the error of every difference
between arms (`choice_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paribus.analysis.table import Table
from paribus.comparison import agree
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.results import Results
from paribus.results.curves import target_axis
from paribus.statistics import (
    LEAST_TUNING_SEEDS,
    TunedArm,
    best_of,
    finite_means,
    lack_of_fit,
    parabola,
    redrawn_error,
    vertex_error,
)
from paribus.study import LEARNING_RATE, Candidate, Study, tuning_study, values_text
from paribus.study.tuning import VERTEX_DIGITS, Value
from paribus.study.tuning_study import candidate_arm


@dataclass(frozen=True)
class Point:
    """Tuning scores of one arm for one candidate.

    Attributes:
        candidate: 1-based number of the candidate.
        values: score for each tuning seed, or NaN if the trial diverged.
        mean: mean score of the trials that did not diverge, or NaN if all diverged.
        chosen: whether this is the arm's best candidate.
    """

    arm: str
    candidate: int
    values: dict[int, float]
    mean: float
    chosen: bool

    @property
    def n_diverged(self) -> int:
        """Number of diverged tuning trials."""
        return sum(not math.isfinite(value) for value in self.values.values())


@dataclass(frozen=True)
class Tuned:
    """Tuning results of a study.

    Attributes:
        metric: the metric that selects candidates.
        candidates: all candidates, in order.
        points: tuning scores, ordered by arm and candidate.
        chosen: selected hyperparameters, keyed by arm. The values are those of the best candidate,
            or those at the vertex of the fitted parabola.
    """

    metric: Metric = field(repr=False)
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    chosen: dict[str, Candidate] = field(default_factory=dict)

    def points_of(self, arm: str) -> list[Point]:
        """Return the tuning scores of `arm`, ordered by candidate."""
        return [point for point in self.points if point.arm == arm]

    def best(self, arm: str) -> Point:
        """Return the tuning scores of the best candidate of `arm`."""
        return next(point for point in self.points_of(arm) if point.chosen)

    def scores(self, arm: str) -> np.ndarray:
        """Return an arm's scores as an array [candidates, seeds]."""
        return np.array([list(point.values.values()) for point in self.points_of(arm)])

    def losses(self, arm: str) -> np.ndarray:
        """Return an arm's scores as an array [candidates, seeds], negated if higher is better."""
        return lower_is_better(self.metric, self.scores(arm))

    def values_of(self, point: Point) -> Candidate:
        """Return the hyperparameter values to which `point` belongs."""
        return self.candidates[point.candidate - 1]

    def extremes(self, arm: str, reference: str) -> list[tuple[Candidate, float]]:
        """Return the smallest and largest mean difference between arm and reference.

        Each comes with its candidate. Differences are averaged over the seeds on which neither arm
        diverged. Returns [] if no such seeds exist.
        """
        compared = np.vectorize(self.metric.compared, otypes=[float])
        changes = finite_means(compared(self.scores(arm)) - compared(self.scores(reference)))
        known = [(at, float(c)) for at, c in zip(self.candidates, changes, strict=True)]
        known = sorted((pair for pair in known if math.isfinite(pair[1])), key=lambda p: p[1])
        return [known[0], known[-1]] if known else []


def lower_is_better(metric: Metric, scores: np.ndarray) -> np.ndarray:
    """Return `scores`, negated if higher is better."""
    return -scores if metric.better == "higher" else scores


def vertex_key(tuned: Tuned) -> str | None:
    """Return the hyperparameter key to which parabolas are fitted, or None if none is suitable.

    This is the learning rate, or else the first key with positive values that are not all integers.
    If several keys are tuned, the candidates must form a full grid.
    """
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
    """Return windows of three candidates for fitting parabolas, as (rows, log values).

    A window contains the best row and its two neighbours along `vertex_key`, in ascending order.
    There is one window for each combination of the other keys' values; the first window has their
    selected values.

    If the best value is the smallest or largest, both neighbours are on the same side. Candidates
    that diverged on any seed are skipped. Returns [] if the first window does not exist.
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
    """Return the tuning results of the study in `table`, or None if it has no tuning."""
    return None if table.tuning is None else tuned_in(table.results.study, table.tuning)


def tuned_in(study: Study, table: Table) -> Tuned:
    """Compute the tuning results of a study from the tuning trials in `table`.

    Raises ParibusError if the trials belong to another tuning plan, or if a trial is unfinished.
    """
    tuning, results = study.tuning, table.results
    assert tuning is not None
    if tuning_study(study).digest != results.study.digest:
        raise ParibusError(
            f"{results.path} contains the trials of another tuning plan; restore the folder, or "
            "choose another one with --results"
        )
    if results.unfinished:
        raise ParibusError(
            f"{results.path}: tuning trial {results.unfinished[0].label} is not finished, but "
            "all arms need the same tuning budget; run the study again to continue"
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
    return replace(tuned, chosen=chosen)


def _chosen(study: Study, tuned: Tuned, arm: str) -> Candidate:
    values, key = dict(tuned.values_of(tuned.best(arm))), vertex_key(tuned)
    if _fits_parabolas(study):
        for rows, x in windows(tuned, arm)[:1]:
            vertex = parabola(x, tuned.losses(arm)[rows].mean(1)).vertex
            values[str(key)] = float(f"{math.exp(vertex):.{VERTEX_DIGITS}g}")
    return values


def tuning_record(study: Study, results: Results) -> dict[str, Any]:
    """Return the content of tuning.json: all tuning scores, and the selected hyperparameters.

    Args:
        study: the tuned study.
        results: results of the tuning study.

    Raises:
        ParibusError: if the trials belong to another tuning plan, or if a trial is unfinished.
    """
    tuning, tuned = study.tuning, tuned_in(study, Table.from_results(results))
    assert tuning is not None
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
    """Return the selected hyperparameters from the content of tuning.json, keyed by arm."""
    return {arm: choice["values"] for arm, choice in record["chosen"].items()}


def why_not_these_values(study: Study, tuned: Tuned | None) -> str:
    """Return why the arms' hyperparameters contradict the tuning trials, or "" if they agree."""
    if study.tuning is None or not study.tuning.chosen:
        return ""
    if tuned is None:
        return "the trials of the tuning study are missing"
    for arm, values in study.tuning.chosen.items():
        if not agree(values, best := tuned.chosen.get(arm, {})):
            chosen = values_text(best) or "nothing"
            return f"{arm} has {values_text(values)}, but the tuning trials select {chosen}"
    return ""


@dataclass(frozen=True)
class Choice:
    """Contribution of hyperparameter selection to the error of a difference between arms.

    Attributes:
        how: method of estimation, "vertex" or "redrawn" (see `paribus.statistics.choice`), or ""
            if the error is unknown.
        error: standard error due to the selection, in the unit in which the endpoint is compared;
            0 if unknown. It includes `lack_of_fit` if the study is registered to do so.
        included: whether the test includes `error`.
        why_not: why the error is unknown, or "" if it is known.
        lack_of_fit: standard error due to loss curves that are not parabolas; 0 if no parabola was
            fitted.
    """

    how: str
    error: float
    included: bool
    why_not: str = ""
    lack_of_fit: float = 0.0


def choice_of(
    table: Table, tuned: Tuned | None, weights: Mapping[str, float], metric: str
) -> Choice | None:
    """Return the error of a difference due to tuning, or None if the study has no tuning.

    If the tuning trials did not measure the metric, such as a loss on test text, the selection
    metric is used instead, provided that both have the same unit.

    Args:
        table: scores of the study.
        tuned: tuning results of the study.
        weights: weight of each arm in the difference.
        metric: name of the compared metric.
    """
    study, tuning = table.results.study, table.tuning
    if study.tuning is None or tuned is None or tuning is None:
        return None
    declared, n_seeds = table.metrics[metric], len(study.tuning.seeds)
    is_measured = any(math.isfinite(tuning.values[*trial, metric]) for trial in tuning.events)
    too_few = f"estimating it needs {LEAST_TUNING_SEEDS} tuning seeds, not {n_seeds}"
    are_few, has_vertex = n_seeds < LEAST_TUNING_SEEDS, _fits_parabolas(study)
    if are_few and not has_vertex:
        why_not = too_few
    elif declared.of_pair or target_axis(metric) is not None:
        why_not = f"{declared.label} is measured on pairs of trials"
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
    seed, included = study.inference.seed, study.inference.chooses_vertex
    sides = list(weights.values())
    trial_sd = _sd_of_runs(table, weights, tuned.metric.name) if are_few else None
    if has_vertex:
        fitted = [_fitted(tuned, arm, *scored) for arm, scored in zip(weights, arms, strict=True)]
        if all(fitted) and not (are_few and trial_sd is None):
            error = vertex_error(fitted, sides, seed=seed, trial_sd=trial_sd)
            fit = lack_of_fit([slices[0] for slices in fitted], sides)
            if study.inference.choice == "with_lack_of_fit":
                error = math.hypot(error, fit)
            return Choice("vertex", error, included, lack_of_fit=fit)
    if are_few:
        return Choice("", 0.0, False, too_few)
    error = redrawn_error(arms, sides, seed=seed)
    if not math.isfinite(error):
        return Choice("", 0.0, False, "every tuning trial of an arm diverged")
    return Choice("redrawn", error, included)


def _fits_parabolas(study: Study) -> bool:
    """Return whether hyperparameters are selected at the vertex of a fitted parabola.

    With fewer than three tuning seeds, this requires that the error includes lack of fit (see
    `benchmarks/few_tuning_seeds.py` for error rates).
    """
    assert study.tuning is not None
    is_enough = len(study.tuning.seeds) >= LEAST_TUNING_SEEDS
    return study.inference.choice == "with_lack_of_fit" or (
        study.inference.chooses_vertex and is_enough
    )


def _sd_of_runs(table: Table, arms: Iterable[str], metric: str) -> float | None:
    """Return the SD of a metric over the study's seeds, pooled over arms.

    Returns None if an arm has fewer than two usable trials.
    """
    values = [list(table.usable(arm, metric).values()) for arm in arms]
    if min(map(len, values)) < 2:
        return None
    return math.sqrt(np.mean([np.var(own, ddof=1) for own in values]))


def _fitted(tuned: Tuned, arm: str, chose: np.ndarray, judged: np.ndarray) -> list[TunedArm]:
    """Return the tuning scores for each of an arm's parabolas, in the order of `windows`.

    Returns [] if the first parabola cannot be fitted.
    """
    tuned_arms = []
    for rows, x in windows(tuned, arm):
        ours = chose[rows]
        part = TunedArm(x, ours, ours if judged is chose else judged[rows])
        if np.isfinite(part.judged).all():
            tuned_arms.append(part)
        elif not tuned_arms:
            return []
    return tuned_arms


def _judged(tuning: Table, tuned: Tuned, arm: str, declared: Metric, read: str) -> np.ndarray:
    """Return an endpoint's tuning scores, [candidates, T], with NaN for diverged trials.

    T is the number of tuning seeds. `read` is the name of the metric whose values are used.
    """
    chose, seeds = tuned.losses(arm), list(tuned.points[0].values)
    names = [candidate_arm(arm, row + 1) for row in range(len(chose))]
    measured = np.array([[tuning.values[own, seed, read] for seed in seeds] for own in names])
    compared = np.vectorize(declared.compared, otypes=[float])(measured)
    return np.where(np.isfinite(chose) & np.isfinite(measured), compared, np.nan)
