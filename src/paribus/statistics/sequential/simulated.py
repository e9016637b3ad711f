"""Operating characteristics of a plan of looks, by simulation: errors, power, pairs used.

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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..conventions import (
    ALPHA,
    POWER,
    Floats,
    Result,
    StatisticsError,
    checked_count,
    checked_fraction,
    finite_array,
)
from ..distributions import brentq, stdtr, stdtrit
from ..multiplicity import holm
from .at_look import predictive_power
from .boundaries import Looks, running_sums, t_statistics

STUDIES = 20_000
SEED = 20_261_123
BLOCK = 2_000_000  # numbers that are drawn at once


@dataclass(frozen=True)
class Characteristics(Result):
    """Outcomes of simulated studies, of K looks at M contrasts on E endpoints.

    What is of every hypothesis is (M E,), the endpoints of a contrast beside each other.

    Attributes:
        pairs: mean number of seed pairs of each contrast when it stops, (M,).
        baseline: mean number of seeds of the shared baseline: as many as the last contrast's.
        effects: share of studies in which each hypothesis is claimed to be an effect, (M E,).
        any_effect: share in which one is claimed at all.
        any_false_effect: share in which one is claimed where the true difference is 0: the
            family-wise error.
        equivalent, any_equivalent: as of effects, of differences inside the margin.
        futile: share of studies in which each hypothesis has no prospect when it stops, (M E,).
        stopped: share of hypotheses that are resolved at each look, by whatever, (K,).
    """

    studies: int
    pairs: tuple[float, ...]
    baseline: float
    effects: tuple[float, ...]
    any_effect: float
    any_false_effect: float
    equivalent: tuple[float, ...]
    any_equivalent: float
    futile: tuple[float, ...]
    stopped: tuple[float, ...]


def characteristics(
    looks: Looks,
    effects: Sequence[float] = (0.0,),
    *,
    endpoints: int = 1,
    alpha: float = ALPHA,
    margin: float | None = None,
    futility: float = 0.0,
    correlation: float = 0.5,
    ignored: float = 0.0,
    studies: int = STUDIES,
    seed: int = SEED,
) -> Characteristics:
    """Simulate studies of normal differences under a plan.

    Args:
        effects: true mean of each hypothesis, in SDs of its paired differences, (M E,).
        endpoints: E, on which every contrast is judged: it goes on until none of them is open, and
            each that is resolved stays as it was.
        margin: of equivalence, in the same SDs; None where it is not tested.
        futility: a contrast stops where its predictive power is below it.
        correlation: between contrasts, on an endpoint; a half where arms of equal spread share a
            baseline. Endpoints are independent, which makes a contrast go on longest.
        ignored: share of stops by equivalence and futility after which sampling goes on and all
            later looks count, as they may: these stops do not bind.
    """
    means = finite_array(list(effects), "effects")
    alpha, studies = checked_fraction(alpha, "alpha"), checked_count(studies, "studies", 1)
    if not 0 <= correlation <= 1:
        raise StatisticsError(f"correlation = {correlation} is not within [0, 1]: pass one that is")
    checked_count(endpoints, "endpoints", 1)
    if len(means) % endpoints:
        raise StatisticsError(
            f"effects has {len(means)} entries of {endpoints} endpoints: state one for each "
            "endpoint of each contrast"
        )
    rules = _Rules(looks, alpha, margin, futility, ignored, endpoints)
    rng = np.random.default_rng([seed, *looks.pairs])
    block = max(1, BLOCK // (looks.pairs[-1] * (len(means) + 1)))
    done = [
        _block(rules, means, correlation, min(block, studies - start), rng)
        for start in range(0, studies, block)
    ]
    outcomes = _Outcomes(*(np.concatenate(parts) for parts in zip(*done, strict=True)))
    return _summary(rules, means, outcomes)


def _summary(rules: _Rules, means: Floats, outcomes: _Outcomes) -> Characteristics:
    looks = rules.looks
    pairs = np.array(looks.pairs)[outcomes.at][:, :: rules.endpoints]
    false = outcomes.effect & (means == 0)
    return Characteristics(
        studies=len(pairs),
        pairs=tuple(pairs.mean(axis=0).tolist()),
        baseline=float(pairs.max(axis=1).mean()),
        effects=tuple(outcomes.effect.mean(axis=0).tolist()),
        any_effect=float(outcomes.effect.any(axis=1).mean()),
        any_false_effect=float(false.any(axis=1).mean()),
        equivalent=tuple(outcomes.same.mean(axis=0).tolist()),
        any_equivalent=float(outcomes.same.any(axis=1).mean()),
        futile=tuple(outcomes.futile.mean(axis=0).tolist()),
        stopped=tuple(
            float(((outcomes.at == k) & outcomes.resolved).mean()) for k in range(len(looks.pairs))
        ),
    )


def detectable_effect(
    looks: Looks, *, alpha: float = ALPHA, power: float = POWER, studies: int = STUDIES
) -> float:
    """Return the least true mean, in SDs, that a contrast of level `alpha` detects with that
    power."""
    checked_fraction(power, "power")
    sums, spreads = running_sums(looks, studies, SEED)
    n = np.array(looks.pairs)
    reach = [-stdtrit(pairs - 1, looks.bound(k, alpha / 2)) for k, pairs in enumerate(looks.pairs)]

    def lacks(d: float) -> float:
        t = t_statistics(looks, sums + n[:, None] * d, spreads)
        return float((np.abs(t) >= np.array(reach)[:, None]).any(axis=0).mean()) - power

    most = 1.0
    while lacks(most) < 0:
        most *= 2
    return float(brentq(lacks, 0.0, most, xtol=1e-4))  # type: ignore[arg-type]


class _Outcomes(NamedTuple):
    """Of every hypothesis of every simulated study, each (N, M E): the look at which its contrast
    stops, and what is claimed of it in the end."""

    at: np.ndarray
    effect: np.ndarray
    same: np.ndarray
    futile: np.ndarray
    resolved: np.ndarray


@dataclass(frozen=True)
class _Rules:
    looks: Looks
    alpha: float
    margin: float | None
    futility: float
    ignored: float
    endpoints: int


def _block(
    rules: _Rules, means: Floats, correlation: float, studies: int, rng: np.random.Generator
) -> _Outcomes:
    """Return so many simulated studies."""
    looks, shape, endpoints = rules.looks, (studies, len(means)), rules.endpoints
    contrasts = len(means) // endpoints
    total, squares = np.zeros(shape), np.zeros(shape)
    p, same_p = np.ones(shape), np.ones(shape)  # those of contrasts that have stopped stay
    at, futile = np.full(shape, len(looks.pairs) - 1), np.zeros(shape, bool)
    going, kept = np.ones((studies, contrasts), bool), np.zeros(shape, bool)
    effect, same = np.zeros(shape, bool), np.zeros(shape, bool)
    before = 0
    for k, pairs in enumerate(looks.pairs):
        new = (studies, pairs - before)
        shared = np.tile(rng.standard_normal((*new, endpoints)), contrasts)
        values = math.sqrt(correlation) * shared + means
        values = values + math.sqrt(1 - correlation) * rng.standard_normal((*new, len(means)))
        total, squares = total + values.sum(axis=1), squares + (values**2).sum(axis=1)
        mean, before = total / pairs, pairs
        error = np.sqrt((squares / pairs - mean**2) / (pairs - 1))
        tested = np.repeat(going, endpoints, axis=1) & ~kept
        p = np.where(tested, _two_sided(looks, k, mean / error), p)
        same_p = np.where(tested, _equivalence(looks, k, mean, error, rules.margin), same_p)
        effect, same = holm(p) <= rules.alpha, holm(same_p) <= rules.alpha
        hopeless = tested & ~effect & ~same & _hopeless(rules, k, mean, error, effect)
        heeded = rng.random(going.shape) >= rules.ignored
        heeded = np.repeat(heeded, endpoints, axis=1)
        kept |= tested & (effect | (same & heeded))
        closed = (kept | (hopeless & heeded)).reshape(*going.shape, endpoints)
        stops = np.repeat(going & closed.all(axis=2), endpoints, axis=1)
        futile |= stops & hopeless
        at[stops] = k
        going &= ~closed.all(axis=2)
    resolved = effect | same | futile
    return _Outcomes(at, effect, same, futile, resolved)


def _two_sided(looks: Looks, k: int, t: Floats) -> Floats:
    return np.minimum(1.0, 2 * looks.level(k, stdtr(looks.pairs[k] - 1, -np.abs(t))))


def _equivalence(looks: Looks, k: int, mean: Floats, error: Floats, margin: float | None) -> Floats:
    """Return the larger p of two one-sided tests over all looks; 1 where there is no margin."""
    if margin is None:
        return np.ones_like(mean)
    return looks.level(k, stdtr(looks.pairs[k] - 1, (np.abs(mean) - margin) / error))


def _hopeless(rules: _Rules, k: int, mean: Floats, error: Floats, effect: np.ndarray) -> np.ndarray:
    """Whose predictive power is below the threshold, each at its level of Holm's method now."""
    if not rules.futility or k == len(rules.looks.pairs) - 1:
        return np.zeros_like(effect)
    left = np.maximum(1, (~effect).sum(axis=1, keepdims=True))
    hopeless = np.zeros_like(effect)
    for open_contrasts in np.unique(left):
        chance = predictive_power(
            n=rules.looks.pairs[k],
            mean=mean,
            standard_error=error,
            looks=rules.looks,
            look=k,
            alpha=rules.alpha / int(open_contrasts),
            margin=rules.margin,
        )
        hopeless |= (left == open_contrasts) & (chance < rules.futility)
    return hopeless
