"""What is known of the cost of a study whose trainer is no engine of ours: what its trials took."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from paribus.errors import ParibusError
from paribus.metric import Metric, by_name
from paribus.results import load_results
from paribus.study import Study, tuning_study
from paribus.trainers.run import declared_by, find_trainer, results_folder


@dataclass(frozen=True)
class TrialCost:
    """Trials, and how long those took that are finished in the study's usual results folder.

    Attributes:
        trials: of the verdict; `tuning_trials` before them, over the grid as it begins.
        finished: of these, in that folder.
        seconds_each: the median of the finished ones; None where none is timed.
        seconds: of all that is left, one after the other; None where that is not known.
        metrics: what the study compares, as it is declared.
    """

    trials: int
    tuning_trials: int
    finished: int
    seconds_each: float | None
    seconds: float | None
    metrics: Mapping[str, Metric]


def trial_cost(study: Study) -> TrialCost:
    """Return what is known of the cost of a study. Its trainer is asked for its metrics."""
    folder = results_folder(study, None)
    found = by_name({"the trainer": declared_by(study, find_trainer(study, folder)).metrics})
    n_tuning = len(tuning_study(study, study.tuning.candidates).trials) if study.tuning else 0
    took: list[float] = []
    finished = 0
    try:
        results = load_results(folder.path) if folder.exists else None
        if results is not None and results.study.name == study.name:
            rounds = [results, *results.tuning_rounds]
            finished = sum(len(one.finished) for one in rounds)
            took = [of["training_seconds"] for one in rounds for of in one.timing.values()]
    except ParibusError:
        pass  # whatever lies there, the study can be shown
    each = statistics.median(took) if took else None
    left = max(len(study.trials) + n_tuning - finished, 0)
    seconds = None if each is None else each * left
    return TrialCost(len(study.trials), n_tuning, finished, each, seconds, found)
