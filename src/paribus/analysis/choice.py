"""The error of a difference that comes from choosing the values of its arms by tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paribus.analysis.table import Table
from paribus.analysis.tuning import Tuned, place, windows
from paribus.metric import Metric
from paribus.numbers import plural
from paribus.results.curves import target_axis
from paribus.statistics import (
    LEAST_TUNING_SEEDS,
    Result,
    TunedArm,
    lack_of_fit,
    redrawn_error,
    vertex_error,
)
from paribus.study.tuning_study import candidate_arm

FINER_GRID, MORE_TUNING_SEEDS = "a finer grid around the optimum", "more tuning seeds"


@dataclass(frozen=True)
class Choice(Result):
    """The error that choosing the values of arms adds to a difference between them.

    Attributes:
        how: "vertex" or "redrawn" (see `paribus.statistics.choice`); empty where it is not known.
        error: SD of the difference that comes from it, as the endpoint is compared; 0 where it is
            not known. With `fit_included` it contains `lack_of_fit`.
        included: whether the test includes `error`.
        n_seeds: tuning seeds.
        why_not: why it is not known; empty where it is.
        lack_of_fit: SD of the difference because loss curves are not parabolas; 0 where no
            parabola was fitted.
        fit_included: whether `error` contains `lack_of_fit`; not in studies registered without it.
    """

    how: str
    error: float
    included: bool
    n_seeds: int
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
    study = table.results.study
    if study.tuning is None or tuned is None or table.tuning is None:
        return None
    n_seeds = len(study.tuning.seeds)
    declared = table.results.metrics[metric]
    chooses = table.tuning.results.metrics[study.tuning.select]
    why_not = _why_not(table.tuning, declared, chooses, n_seeds)
    if why_not:
        return Choice("", 0.0, False, n_seeds, why_not)
    arms = [_scores(table.tuning, tuned, name, declared, chooses) for name in weights]
    seed, included = study.inference.seed, study.inference.choice != "fixed"
    if study.inference.chooses_vertex:
        fitted = [_fitted(tuned, *scored) for scored in zip(weights, arms, strict=True)]
        if all(fitted):
            sides = list(weights.values())
            error = vertex_error(fitted, sides, seed=seed)
            fit = lack_of_fit([slices[0] for slices in fitted], sides)
            if is_fit_included := study.inference.choice == "with_lack_of_fit":
                error = math.hypot(error, fit)
            return Choice(
                "vertex", error, included, n_seeds, lack_of_fit=fit, fit_included=is_fit_included
            )
    error = redrawn_error(arms, list(weights.values()), seed=seed)
    if not math.isfinite(error):
        return Choice("", 0.0, False, n_seeds, "every tuning trial of an arm diverged")
    return Choice("redrawn", error, included, n_seeds)


def _fitted(tuned: Tuned, arm: str, scores: tuple[np.ndarray, np.ndarray]) -> list[TunedArm]:
    """Return what the parabolas of an arm are fitted to, with the other keys as chosen first; empty
    where that has none."""
    chose, judged = scores
    tuned_arms = []
    for rows in windows(tuned, arm):
        x, ours = [place(tuned, row) for row in rows], chose[rows]
        tuned_arm = TunedArm(x, ours, ours if judged is chose else judged[rows])
        if np.isfinite(tuned_arm.judged).all():
            tuned_arms.append(tuned_arm)
        elif not tuned_arms:
            return []
    return tuned_arms


def _why_not(tuning: Table, declared: Metric, chooses: Metric, n_seeds: int) -> str:
    if n_seeds < LEAST_TUNING_SEEDS:
        return f"{plural(n_seeds, 'tuning seed')} cannot show it, {LEAST_TUNING_SEEDS} can"
    if declared.of_pair or target_axis(declared.name) is not None:
        return f"{declared.label} is of pairs of trials"
    if not _measured(tuning, declared.name) and (declared.unit, declared.scale) != (
        chooses.unit,
        chooses.scale,
    ):
        return f"the tuning trials did not measure {declared.label}"
    return ""


def _measured(tuning: Table, metric: str) -> bool:
    return any(math.isfinite(tuning.values[arm, seed, metric]) for arm, seed in tuning.events)


def _scores(
    tuning: Table, tuned: Tuned, arm: str, declared: Metric, chooses: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """[candidates, T] what chose, lower is better, and the endpoint; NaN where a trial diverged."""
    chose = tuned.losses(arm)
    if declared.name == chooses.name and declared.scale == "linear" and chooses.better != "higher":
        return chose, chose
    name = declared.name if _measured(tuning, declared.name) else chooses.name
    names = [candidate_arm(arm, row + 1) for row in range(len(chose))]
    measured = [
        [tuning.values[own, seed, name] for seed in tuned.points[0].values] for own in names
    ]
    judged = np.vectorize(declared.compared)(measured)
    return chose, np.where(np.isfinite(chose) & np.isfinite(measured), judged, np.nan)
