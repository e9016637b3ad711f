"""An oracle for plans of looks: errors, power and pairs used, simulated pair by pair.

Several arms share a baseline; each difference from it is a contrast. At every look the contrasts
that are still open are tested; p-values over all looks (`Looks.level`) enter Holm's method together
with those of contrasts that stopped before, which stay what they were. That is the graphical
procedure of Maurer and Bretz (2013, Statistics in Biopharmaceutical Research 5, 311-320) with
Holm's graph: a contrast starts at level alpha / m, and one that is rejected passes its level on to
the others, from that look on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from scipy.special import stdtr

from paribus.statistics import Looks, holm

STUDIES = 20_000
SEED = 20_261_123
SHARED = math.sqrt(0.5)  # of a difference: what all contrasts have from their baseline


def characteristics(
    looks: Looks,
    effects: Sequence[float] = (0.0,),
    *,
    endpoints: int = 1,
    alpha: float = 0.05,
    margin: float | None = None,
    studies: int = STUDIES,
) -> SimpleNamespace:
    """Simulate studies of normal differences under a plan.

    Contrasts correlate by one half on an endpoint, as where arms of equal spread share a baseline.
    Endpoints are independent, which makes a contrast go on longest.

    Args:
        effects: true mean of each hypothesis, in SDs of its paired differences, (M E,).
        endpoints: E, on which every contrast is judged: it goes on until none of them is open, and
            each that is resolved stays as it was.
        margin: of equivalence, in the same SDs; None where it is not tested.
    Returns: `pairs` of each contrast when it stops, on average; the share of studies in which each
        hypothesis is claimed as an effect (`effects`), one is (`any_effect`), one is whose true
        difference is 0 (`any_false_effect`), and one is claimed inside the margin
        (`any_equivalent`).
    """
    means = np.array(effects)
    rng = np.random.default_rng([SEED, *looks.pairs])
    shape, contrasts = (studies, len(means)), len(means) // endpoints
    total, squares = np.zeros(shape), np.zeros(shape)
    p, same_p = np.ones(shape), np.ones(shape)  # those of contrasts that have stopped stay
    pairs_used = np.full((studies, contrasts), looks.pairs[-1])
    going, resolved = np.ones((studies, contrasts), bool), np.zeros(shape, bool)
    effect, same = np.zeros(shape, bool), np.zeros(shape, bool)
    before = 0
    for k, pairs in enumerate(looks.pairs):
        for _ in range(pairs - before):
            shared = np.tile(rng.standard_normal((studies, endpoints)), contrasts)
            values = means + SHARED * (shared + rng.standard_normal(shape))
            total, squares = total + values, squares + values**2
        mean, before = total / pairs, pairs
        error = np.sqrt((squares / pairs - mean**2) / (pairs - 1))
        tested = np.repeat(going, endpoints, axis=1) & ~resolved
        p = np.where(tested, _two_sided(looks, k, mean / error), p)
        same_p = np.where(tested, _equivalence(looks, k, mean, error, margin), same_p)
        effect, same = holm(p) <= alpha, holm(same_p) <= alpha
        resolved |= tested & (effect | same)
        stops = going & resolved.reshape(*going.shape, endpoints).all(axis=2)
        pairs_used[stops] = pairs
        going &= ~stops
    return SimpleNamespace(
        pairs=tuple(pairs_used.mean(axis=0).tolist()),
        effects=tuple(effect.mean(axis=0).tolist()),
        any_effect=float(effect.any(axis=1).mean()),
        any_false_effect=float((effect & (means == 0)).any(axis=1).mean()),
        any_equivalent=float(same.any(axis=1).mean()),
    )


def _two_sided(looks: Looks, k: int, t: np.ndarray) -> np.ndarray:
    return np.minimum(1.0, 2 * looks.level(k, stdtr(looks.pairs[k] - 1, -np.abs(t))))


def _equivalence(
    looks: Looks, k: int, mean: np.ndarray, error: np.ndarray, margin: float | None
) -> np.ndarray:
    """Return the larger p of two one-sided tests over all looks; 1 where there is no margin."""
    if margin is None:
        return np.ones_like(mean)
    return looks.level(k, stdtr(looks.pairs[k] - 1, (np.abs(mean) - margin) / error))
