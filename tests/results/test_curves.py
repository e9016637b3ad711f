"""Budgets to a loss and speed-ups: by hand, and what they do where nothing differs."""

import math

import numpy as np
import pytest

from paribus.results.curves import LossCurve, speedup
from paribus.statistics import paired_t


def curve_of(loss: np.ndarray, tokens: np.ndarray | None = None) -> LossCurve:
    at = np.arange(len(loss)) * 100.0 if tokens is None else tokens
    return LossCurve(at, at, 6 * at, None, np.asarray(loss, float), 10)


def test_a_loss_is_reached_in_a_straight_line_between_points():
    curve = curve_of(np.array([4.0, 3.0, 2.0, 2.5, 1.5]))
    assert curve.spent_at(3.5, "tokens") == 50
    assert curve.spent_at(3.0, "tokens") == 100
    assert curve.spent_at(2.25, "tokens") == 175  # the first time, though it rises again
    assert curve.spent_at(2.25, "flops") == 6 * 175
    assert curve.spent_at(5.0, "tokens") == 0  # where it began
    assert curve.spent_at(1.0, "tokens") == math.inf
    assert math.isnan(curve.spent_at(2.0, "seconds"))
    assert curve.loss_at(np.array([0, 50, 400, 401.0]), "tokens").tolist()[:3] == [4.0, 3.5, 1.5]
    assert math.isnan(curve.loss_at(np.array([401.0]), "tokens")[0])


def test_points_that_are_not_finite_are_above_any_loss():
    curve = curve_of(np.array([4.0, math.nan, 2.0, math.inf]))
    assert curve.spent_at(3.0, "tokens") == 200  # nothing to interpolate from
    assert curve.spent_at(1.0, "tokens") == math.inf


def test_a_known_speed_up_either_way():
    slow = curve_of(4 - np.arange(9) * 0.25)
    fast = curve_of(4 - np.arange(9) * 0.5)
    assert speedup(fast, slow, "tokens") == 2
    assert speedup(slow, fast, "flops") == 0.5
    assert speedup(slow, slow, "tokens") == 1
    # Of a power law: the same loss with 1 / 1.7 of the tokens, up to the straight lines.
    at = np.arange(201) * 10.0
    law = curve_of(3 * (at + 1) ** -0.1, at)
    faster = curve_of(3 * (1.7 * at + 1) ** -0.1, at)
    assert speedup(faster, law, "tokens") == pytest.approx(1.7, rel=1e-3)
    # One that learns nothing reaches no loss below its first.
    assert math.isnan(speedup(curve_of(np.array([4.0, 4.5])), slow, "tokens"))
    assert math.isnan(speedup(curve_of(np.array([4.0, math.nan])), slow, "tokens"))


def shares(true_speedup: float, n: int, studies: int, seed: int) -> tuple[float, float]:
    """How many of so many studies of n pairs, by the t interval of log speed-ups at equal loss,
    find the truth, and find a difference."""
    rng, at = np.random.default_rng(seed), np.linspace(0, 1000, 21)
    intervals = []
    for _ in range(studies):
        logs = []
        for base, ours, theirs in rng.normal(0, [0.2, 0.01, 0.01], (n, 3)):
            arm = curve_of(4 + base + ours - 0.3 * np.log1p(true_speedup * at / 20), at)
            reference = curve_of(4 + base + theirs - 0.3 * np.log1p(at / 20), at)
            logs.append(math.log(speedup(arm, reference, "tokens")))
        intervals.append(paired_t(np.array(logs)).interval())
    covered = np.mean([math.log(true_speedup) in interval for interval in intervals])
    return float(covered), float(np.mean([0.0 not in interval for interval in intervals]))


def test_speed_ups_at_equal_loss_hold_their_level():
    """400 studies of 10 seeds, within 4 Monte Carlo errors."""
    error = 4 * math.sqrt(0.05 * 0.95 / 400)
    assert abs(shares(1.0, 10, 400, seed=1)[1] - 0.05) < error
    assert abs(shares(1.5, 5, 400, seed=2)[0] - 0.95) < error
