"""Comparison of arms during training, against tokens, FLOPs and seconds.

These results are descriptive: the loss at the end of the schedule stays primary. A decaying
learning rate ends every curve lower than a longer run would be at that point. So "less budget
to the same loss" holds for this schedule only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from paribus.analysis.table import Table
from paribus.results.curves import AXES, ROUNDING, Axis, speedup
from paribus.statistics import Decided, decided, paired_t


@dataclass(frozen=True)
class Along:
    """Difference between an arm and its reference along one budget.

    Attributes:
        axis: the budget.
        spent: the budgets at which arms are compared: those of the reference's curve, up to the
            smallest final budget of any trial. Points where any trial's loss is not finite are
            dropped.
        mean, low, high: arm minus reference at these budgets, in nats per token, with its
            pointwise paired t interval.
        speedup: the logarithm of the reference's budget divided by the arm's, at a loss that both
            runs of a pair reach. None for fewer than two such pairs. A non-finite loss during
            training counts as higher than any other, so it excludes no pair.
    """

    arm: str
    reference: str
    axis: Axis
    spent: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    speedup: Decided | None


def along(table: Table) -> Iterator[Along]:
    """Yield every contrast along every budget that the curves of all its trials record.

    Seeds are those that the contrast can use. Arms with different tokenizers or a broken
    control are not compared.
    """
    study, curves = table.results.study, table.results.trial_curves
    alpha = study.inference.alpha
    for arms in study.contrasts:
        if table.broken(arms[0]) or not study.share_tokens(*arms):
            continue
        pairs = [
            (curves[arms[0], seed], curves[arms[1], seed])
            for seed in table.sampling(arms[0]).seeds
            if all((arm, seed) in curves and not table.why_diverged(arm, seed) for arm in arms)
        ]
        for axis in AXES if len(pairs) > 1 else ():
            budgets = [curve.along(axis) for pair in pairs for curve in pair]
            known = [budget for budget in budgets if budget is not None]
            if len(known) < len(budgets):
                continue
            end = min(float(budget[-1]) for budget in known)
            spent = np.append(known[1][known[1] < end * (1 - ROUNDING)], end)
            deltas = np.array([a.loss_at(spent, axis) - b.loss_at(spent, axis) for a, b in pairs])
            kept = np.isfinite(deltas).all(axis=0)
            if not kept.any():
                continue
            spent, deltas = spent[kept], deltas[:, kept]
            mean, error = deltas.mean(axis=0), deltas.std(axis=0, ddof=1) / math.sqrt(len(pairs))
            half = scipy.special.stdtrit(len(pairs) - 1, 1 - alpha / 2) * error
            points = [tuple(at.tolist()) for at in (spent, mean, mean - half, mean + half)]
            logs = np.log([s for a, b in pairs if (s := speedup(a, b, axis)) > 0])
            ratio = decided(paired_t(logs), "paired_t", alpha=alpha) if logs.size > 1 else None
            yield Along(*arms, axis, *points, speedup=ratio)
