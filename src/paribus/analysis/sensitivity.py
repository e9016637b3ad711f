"""Learning-rate sensitivity from tuning trials, per tuning seed, as a paired outcome."""

from __future__ import annotations

import math

import numpy as np

from paribus.analysis.choose import Tried
from paribus.analysis.infer import infer
from paribus.analysis.side_effects import Sensitivity
from paribus.statistics import StatisticsError, learning_rate_sensitivity
from paribus.study import LEARNING_RATE, Study


def sensitivities(study: Study, tried: Tried) -> list[Sensitivity]:
    """Of every arm, over the rates that all were tuned with; empty where more than the learning
    rate was tuned, or by another metric than the loss that it is defined of."""
    tuning = study.tuning
    if tuning is None or tuning.keys != (LEARNING_RATE,) or tuning.select != study.format.loss:
        return []
    values = {arm: _by_seed(tried, arm) for arm in study.arms}
    found = []
    for arm in study.arms:
        reference = study.reference(arm)
        theirs = values[reference] if reference else {}
        shared = [
            seed
            for seed, value in values[arm].items()
            if math.isfinite(value) and math.isfinite(theirs.get(seed, math.nan))
        ]
        paired = None
        if len(shared) > 1:
            paired = infer(study, [theirs[s] for s in shared], [values[arm][s] for s in shared])
        found.append(Sensitivity(arm, reference, values[arm], paired))
    return found


def _by_seed(tried: Tried, arm: str) -> dict[int, float]:
    """Sensitivity of the validation loss by tuning seed; a diverged trial learned nothing."""
    scores, found = tried.scores[arm], {}
    for seed, initial in tried.initial[arm].items():
        final = [by_seed[seed] for by_seed in scores.values()]
        try:
            found[seed] = float(learning_rate_sensitivity([final], np.array([initial]))[0])
        except StatisticsError:
            # No learning rate of this seed learned anything. Its best loss is the initial one, as
            # are all others: what is left is the formula's value, 0, which would flatter it.
            found[seed] = math.nan
    return found
