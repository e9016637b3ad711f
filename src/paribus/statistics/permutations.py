"""Exact tests by rearranging what was observed: signs of differences, or labels of runs.

If a treatment does nothing, each seed's difference is as likely to have either sign (Fisher 1935,
section 21), and where runs are no pairs, every way to deal them to the arms is as likely (Pitman
1937). All rearrangements are enumerated while they are few, seeded ones are drawn above. No n pairs
can give a p below 2^(1-n), however large the effect: the floor.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .conventions import RESAMPLES, TIE, Floats, Result, checked_resamples, checked_scores

ENUMERATE_FLIPS_TO = 20  # pairs; up to here all 2^(n-1) sign patterns are enumerated
ENUMERATE_TO = 20_000  # ways to deal runs to two arms; up to here all are looked at


@dataclass(frozen=True)
class Rearranged(Result):
    """p of the test, and the least p that so many pairs or runs could have given."""

    p_value: float
    floor: float
    enumerated: bool


def _rearranged(
    sums: Floats, observed: float, slack: float, floor: float, *, drawn: bool
) -> Rearranged:
    """Return the share of rearrangements whose |sum| is not below that observed, which counts as
    one more where others are drawn."""
    total = len(sums) + drawn
    exceeding = int((np.abs(sums) >= abs(observed) - slack).sum()) + drawn
    return Rearranged(exceeding / total, max(floor, drawn / total), not drawn)


def sign_flip(deltas: ArrayLike, *, seed: int, resamples: int = RESAMPLES) -> Rearranged:
    """Sign-flip test of differences of shape (S,), S >= 2, two-sided; identical arms get 1."""
    values, resamples = checked_scores(deltas, "deltas"), checked_resamples(resamples)
    # In units of the largest |sum| there is, so that no small endpoint underflows.
    values = values / (np.abs(values).sum() or 1.0)
    n, drawn = values.size, values.size > ENUMERATE_FLIPS_TO
    if drawn:
        sums = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, n)) @ values
    else:  # with the first sign fixed, as |sum| is even
        sums = values[:1]
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
    return _rearranged(sums, float(values.sum()), TIE, 2.0 ** (1 - n), drawn=drawn)


def permutation(
    baseline: ArrayLike, treatment: ArrayLike, *, seed: int, resamples: int = RESAMPLES
) -> Rearranged:
    """Permutation test of the difference of means of shapes (A,) and (B,), two-sided."""
    first, second = checked_scores(baseline, "baseline"), checked_scores(treatment, "treatment")
    resamples = checked_resamples(resamples)
    pooled = np.concatenate([first, second])
    centre = math.fsum(pooled) / pooled.size
    pooled = (pooled - centre) / (float(np.abs(pooled - centre).max()) or 1.0)
    n, total = second.size, pooled.size
    ways = math.comb(total, n)
    drawn = ways > ENUMERATE_TO
    if drawn:
        rng = np.random.default_rng(seed)
        sums = rng.permuted(np.broadcast_to(pooled, (resamples, total)), axis=1)[:, :n].sum(axis=1)
    else:
        dealt = np.array(list(itertools.combinations(range(total), n)))
        sums = pooled[dealt].sum(axis=1)
    least = (2 if n == first.size else 1) / ways  # both labellings of one split are as extreme
    observed = float(pooled[first.size :].sum())
    return _rearranged(sums, observed, TIE * total, least, drawn=drawn)
