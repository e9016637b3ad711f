"""Learning-rate sensitivity of sweeps, per seed, as a paired outcome."""

from __future__ import annotations

import math

import numpy as np

from paribus.analysis.infer import infer
from paribus.analysis.side_effects import Sensitivity
from paribus.analysis.table import Table
from paribus.statistics import StatisticsError, learning_rate_sensitivity
from paribus.study import Study


def sensitivities(table: Table) -> list[Sensitivity]:
    """Every sweep of the study, over the seeds that all of its arms have finished."""
    study = table.results.study
    values = {name: _by_seed(table, sweep.arms) for name, sweep in study.sweeps.items()}
    found = []
    for name, sweep in study.sweeps.items():
        theirs = values[sweep.against] if sweep.against else {}
        shared = [seed for seed in values[name] if math.isfinite(theirs.get(seed, math.nan))]
        shared = [seed for seed in shared if math.isfinite(values[name][seed])]
        paired = None
        if len(shared) > 1:
            ours = values[name]
            paired = infer(study, [theirs[s] for s in shared], [ours[s] for s in shared])
        found.append(Sensitivity(name, sweep.against, values[name], paired))
    return found


def _by_seed(table: Table, arms: tuple[str, ...]) -> dict[int, float]:
    """Sensitivity of the validation loss by seed; a diverged trial learned nothing."""
    study: Study = table.results.study
    found = {}
    for seed in study.seeds:
        if not all((arm, seed) in table.events for arm in arms):
            continue
        usable = [not table.why_unusable(arm, seed, "validation_loss") for arm in arms]
        final = [
            table.values[arm, seed, "validation_loss"] if there else math.nan
            for arm, there in zip(arms, usable, strict=True)
        ]
        initial = table.events[arms[0], seed].initial_loss
        try:
            found[seed] = float(learning_rate_sensitivity([final], np.array([initial]))[0])
        except StatisticsError:
            # No learning rate of this seed learned anything. Its best loss is the initial one, as
            # are all others: what is left is the formula's value, 0, which would flatter it.
            found[seed] = math.nan
    return found
