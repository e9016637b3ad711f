"""The grid that printed scores lie on, and how many equal scores it explains.

A share of correct answers is a multiple of 1 / questions, also if it was rounded or stored in 32
bits. Any other score is taken to lie on the grid of its last decimal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import scipy

MOST_QUESTIONS = 100_000  # of a share of correct answers
RARE = 0.01  # chance of so many equal runs, or of a grid that fits by accident
NORMAL_MAD = 0.6744897501960817  # median absolute deviation of a standard normal
AT_ONCE = 5000  # numbers of questions that are tried together
ARTEFACT = 8  # units in the last place that arithmetic on short decimals leaves


def score_steps(arms: Sequence[Sequence[float]]) -> list[float]:
    """Return the step of each arm's grid, in the unit of the scores.

    1 for integers; 1 / questions (or 100 / questions) if some number of questions gives all scores
    and chance alone gives one with a probability below RARE; else the last decimal.
    """
    arms = [[float(value) for value in arm] for arm in arms]
    values = [value for arm in arms for value in arm]
    if all(value == round(value) for value in values):
        return [1.0] * len(arms)
    decimals = [decimal_step(arm) for arm in arms]
    shared = _share_step(arms, decimals)
    return [
        shared or _share_step([arm], [step]) or step
        for arm, step in zip(arms, decimals, strict=True)
    ]


def decimal_step(values: Sequence[float]) -> float:
    """Return the last decimal that scores were printed with: 0.01 of 3.5 and 3.28.

    Scores stored in 32 bits have the decimals that this type can show. Errors of arithmetic, as in
    0.30000000000000004, are no decimals.
    """
    with np.errstate(over="ignore"):
        stored = np.asarray(values, dtype=np.float64).astype(np.float32)
    is_single = bool((stored == np.asarray(values)).all())
    texts = map(str, stored) if is_single else (f"{value:.15g}" for value in values)
    last = min(0, *(int(Decimal(text).normalize().as_tuple().exponent) for text in texts))
    return max(10.0**last, float(np.spacing(np.abs(stored).max())) if is_single else 0.0)


def _share_step(arms: Sequence[Sequence[float]], decimals: Sequence[float]) -> float | None:
    """Return the step of shares of the fewest questions that give all scores; None for no share."""
    largest = max(value for arm in arms for value in arm)
    if min(value for arm in arms for value in arm) < 0 or largest > 100:
        return None
    scale = 1.0 if largest <= 1 else 100.0
    distinct = [np.unique(arm) / scale for arm in arms]
    roundings = [decimal / scale / 2 for decimal in decimals]
    for first in range(1, MOST_QUESTIONS, AT_ONCE):
        fitting = np.arange(first, first + AT_ONCE, dtype=np.float64)
        for shares, rounding in zip(distinct, roundings, strict=True):
            for share in shares:
                tolerance = rounding * (1 + 1e-6) + ARTEFACT * math.ulp(share)
                correct = share * fitting
                fitting = fitting[np.abs(correct - np.round(correct)) <= tolerance * fitting]
        for n in fitting:
            if all(len(np.unique(np.round(shares * n))) == len(shares) for shares in distinct):
                is_chance = _fit_by_chance(int(n), distinct, roundings) >= RARE
                return None if is_chance else scale / float(n)
        if _fit_by_chance(first + AT_ONCE - 1, distinct, roundings) >= RARE:
            return None
    return None


def _fit_by_chance(n: int, distinct: Sequence[np.ndarray], roundings: Sequence[float]) -> float:
    """Return how many numbers of questions up to `n` are expected to give any such scores.

    A score of each arm is left out, because many numbers of questions give a round one.
    """
    questions = np.arange(1, n + 1, dtype=np.float64)
    log_chance = sum(
        (len(shares) - 1) * np.log(np.minimum(1.0, 2 * rounding * questions))
        for shares, rounding in zip(distinct, roundings, strict=True)
    )
    return float(np.exp(log_chance).sum())


def repeated_scores(arms: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, int]]:
    """Return the arms with more equal scores than their grid explains, each with the commonest
    score and how many runs have it.

    Every arm is asked by itself, because arms may be printed with different numbers of decimals.
    The chance that one of several honest arms is named is at most RARE.

    Two normal values of SD s, rounded to steps of r, are equal with probability
    r / (2 sqrt(pi) s). The SD is robust, because an outlier makes equal values elsewhere no less
    likely. An arm whose scores are all equal has the largest SD of the other arms.
    """
    arms = {name: arm for name, arm in arms.items() if len(arm)}
    spreads = {name: _robust_sd(sorted(set(arm))) for name, arm in arms.items()}
    largest = max(spreads.values(), default=0.0)
    if not 0 < largest < math.inf:
        return {}
    repeated = {}
    for (name, arm), step in zip(arms.items(), score_steps(list(arms.values())), strict=True):
        again, spread = len(arm) - len(set(arm)), spreads[name] or largest
        expected = math.comb(len(arm), 2) * step / (2 * math.sqrt(math.pi) * spread)
        # The chance of so many events or more, where so many are expected (Poisson).
        if again and scipy.special.pdtrc(again - 1, expected) < RARE / len(arms):
            repeated[name] = Counter(arm).most_common(1)[0]
    return repeated


def _robust_sd(values: Sequence[float]) -> float:
    """Return the SD of normal values from their median absolute deviation; 0 of fewer than two."""
    if len(values) < 2:
        return 0.0
    with np.errstate(over="ignore"):
        return float(np.median(np.abs(np.subtract(values, np.median(values))))) / NORMAL_MAD
