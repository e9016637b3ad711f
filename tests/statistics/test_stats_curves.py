"""Contrasts along a budget: known crossings, coverage, and who came first."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paribus.statistics import StatisticsError, curve_contrast, paired_t, which_first

AT = np.arange(0.0, 11.0)


def test_a_known_crossing_is_found_between_points() -> None:
    """Means fall in a line from +7 to -3: they cross at 7, and between points at 3.5."""
    spread = np.array([-0.1, 0.0, 0.1])[:, None]
    found = curve_contrast(AT, 7.0 - AT + spread)
    assert [c.at for c in found.crossings] == [pytest.approx(7.0)]
    found = curve_contrast(AT, 3.5 - AT + spread)
    assert [(c.at, c.resolved) for c in found.crossings] == [(pytest.approx(3.5), True)]
    assert found.mean == pytest.approx(3.5 - AT)


def test_every_point_has_the_paired_t_of_its_own() -> None:
    deltas = np.random.default_rng(0).normal(size=(6, 11))
    found = curve_contrast(AT, deltas, alpha=0.1)
    for p in range(11):
        interval = paired_t(deltas[:, p]).interval(0.9)
        assert (found.low[p], found.high[p]) == (interval.low, interval.high)
    assert found.level == 0.9 and found.n == 6


def test_curves_that_touch_or_begin_as_one_do_not_cross() -> None:
    spread = np.array([-0.1, 0.1])[:, None]
    same_start = np.where(AT == 0, 0.0, 1.0) * (1 + spread)
    assert curve_contrast(AT, same_start).crossings == ()
    assert curve_contrast(AT, abs(AT - 5) * (1 + spread)).crossings == ()
    assert curve_contrast(AT, np.zeros((3, 11))).crossings == ()


def test_a_crossing_within_noise_is_not_resolved() -> None:
    rng = np.random.default_rng(1)
    found = curve_contrast(AT, 0.01 * (3.5 - AT) + rng.normal(size=(5, 11)))
    assert found.crossings and not any(crossing.resolved for crossing in found.crossings)


@pytest.mark.parametrize("n", [3, 8])
def test_pointwise_intervals_cover_at_each_point(n: int) -> None:
    """1,000 studies: a true contrast that grows from 0 to 1, noise that is shared along a seed."""
    rng, truth = np.random.default_rng(n), AT / 10
    covered = np.zeros(len(AT))
    for _ in range(1000 // 10):
        walks = rng.normal(size=(10, n, len(AT))).cumsum(axis=2)
        for deltas in truth + walks:
            found = curve_contrast(AT, deltas)
            covered += (np.array(found.low) <= truth) & (truth <= np.array(found.high))
    error = 4 * math.sqrt(0.05 * 0.95 / 1000)
    assert (abs(covered / 1000 - 0.95) < error).all()


def test_who_comes_first_is_known_of_pairs_of_which_one_arrives() -> None:
    never = math.inf
    found = which_first([1.0, 2.0, never, 4.0, never, 3.0], [2.0, never, 1.0, 3.0, never, 3.0])
    assert (found.both, found.only_baseline, found.only_treatment, found.neither) == (3, 1, 1, 1)
    assert (found.treatment_first, found.baseline_first) == (2, 2)
    assert found.p_value == 1
    swapped = which_first([2.0, never], [1.0, 1.0])
    assert (swapped.treatment_first, swapped.baseline_first) == (2, 0)
    # Six of six: 2 / 2^6.
    assert which_first([never] * 6, [1.0] * 6).p_value == pytest.approx(2 / 64)


def test_bad_curves_are_refused() -> None:
    for budget, deltas in (([1, 2], np.zeros((2, 3))), ([2, 1], np.zeros((2, 2)))):
        with pytest.raises(StatisticsError, match="one ascending budget"):
            curve_contrast(budget, deltas)
    with pytest.raises(StatisticsError):
        curve_contrast([1, 2], np.zeros((1, 2)))
    for one, other in (([1.0], [1.0, 2.0]), ([math.nan], [1.0])):
        with pytest.raises(StatisticsError, match="one number for each pair"):
            which_first(one, other)
