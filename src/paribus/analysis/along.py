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
from paribus.results.curves import AXES, ROUNDING, Axis, LossCurve, speedup
from paribus.statistics import Decided, decided, paired_t

Pairs = list[tuple[LossCurve, LossCurve]]


@dataclass(frozen=True)
class Along:
    """Difference between an arm and its reference along one budget.

    Attributes:
        axis: the budget.
        spent: the points of the comparison: those of the reference's curve, up to the smallest
            final budget of any trial. Points where any trial's loss is not finite are dropped.
        mean, low, high: arm minus reference at these points in nats per token, and the ends of the
            paired t interval of each point by itself.
        speedup: the logarithm of the reference's budget over the arm's, at a loss that both of a
            pair reach. None for fewer than two such pairs. A non-finite loss on the way counts as
            higher than any other, so it excludes no pair.
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
    """Yield every contrast along every known budget; nothing if no curve was measured.

    Seeds are those that the contrast can use. Arms with different tokenizers or a broken
    control are not compared.
    """
    study, curves = table.results.study, table.results.trial_curves
    for pair in study.contrasts:
        if table.broken(pair[0]) or not study.share_tokens(*pair):
            continue
        pairs = [
            (curves[pair[0], seed], curves[pair[1], seed])
            for seed in table.sampling(pair[0]).seeds
            if all((arm, seed) in curves and not table.why_diverged(arm, seed) for arm in pair)
        ]
        for axis in AXES if len(pairs) > 1 else ():
            budgets = [curve.along(axis) for curves_of_pair in pairs for curve in curves_of_pair]
            known = [spent for spent in budgets if spent is not None]
            if len(known) == len(budgets):
                yield from _along(pair, axis, pairs, known, study.inference.alpha)


def _along(
    arms: tuple[str, str], axis: Axis, pairs: Pairs, budgets: list[np.ndarray], alpha: float
) -> Iterator[Along]:
    end = min(float(budget[-1]) for budget in budgets)
    inside = budgets[1][budgets[1] < end * (1 - ROUNDING)]
    spent = np.append(inside, end)
    deltas = np.array([a.loss_at(spent, axis) - b.loss_at(spent, axis) for a, b in pairs])
    kept = np.isfinite(deltas).all(axis=0)
    if not kept.any():
        return
    deltas = deltas[:, kept]
    mean, error = deltas.mean(axis=0), deltas.std(axis=0, ddof=1) / math.sqrt(len(deltas))
    half = scipy.special.stdtrit(len(deltas) - 1, 1 - alpha / 2) * error
    curves = [tuple(points.tolist()) for points in (spent[kept], mean, mean - half, mean + half)]
    logs = np.log([s for a, b in pairs if (s := speedup(a, b, axis)) > 0])
    ratio = decided(paired_t(logs), "paired_t", alpha=alpha) if logs.size > 1 else None
    yield Along(*arms, axis, *curves, speedup=ratio)
