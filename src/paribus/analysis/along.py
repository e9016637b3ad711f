"""Comparison of arms during training, as a function of tokens, FLOPs or seconds.

These results are descriptive. With a decaying learning rate, a curve ends lower than a longer run
would be at the same step, so statements about the budget to a given loss hold only for the
schedule of the study.
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
    """Difference between an arm and its reference during training.

    Attributes:
        axis: kind of budget on the x-axis.
        spent: budgets at which arms are compared. These are the points of the reference's curve,
            up to the smallest final budget of any trial, where all losses are finite.
        mean, low, high: mean difference (arm minus reference) at each budget, in nats per token,
            and its pointwise paired t interval.
        speedup: result for the log ratio of budgets (reference / arm) at equal loss, or None for
            fewer than two pairs that reach the same loss.
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
    """Yield a comparison for each contrast and each budget that all its trials recorded.

    Skip arms with different tokenizers or a broken control.
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
