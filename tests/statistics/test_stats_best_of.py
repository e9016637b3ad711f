"""The expected best of n against opda 0.8.0, against simulation, and at its ends."""

from __future__ import annotations

import numpy as np
import pytest

from paribus.statistics import StatisticsError, expected_best_of

VALUES = [3.1, 2.7, 2.9, 4.0, 2.75]
NS = [1, 2, 3, 5, 10]


def test_it_is_that_of_opda() -> None:
    # opda.nonparametric.EmpiricalDistribution(VALUES).average_tuning_curve(NS, minimize=...)
    lowest = [3.09, 2.854, 2.778, 2.730384, 2.70629677]
    highest = [3.09, 3.326, 3.486, 3.687984, 3.90213818]
    np.testing.assert_allclose(expected_best_of(VALUES, NS), lowest, rtol=1e-8)
    np.testing.assert_allclose(expected_best_of(VALUES, NS, "higher"), highest, rtol=1e-8)


def test_it_is_the_mean_of_many_searches() -> None:
    drawn = np.random.default_rng(0).choice(VALUES, size=(200_000, 4)).min(axis=1)
    assert expected_best_of(VALUES, 4) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 447)


def test_one_draw_is_the_mean_and_many_are_the_best() -> None:
    assert expected_best_of(VALUES, 1) == pytest.approx(np.mean(VALUES))
    assert expected_best_of(VALUES, 10_000) == pytest.approx(2.7)


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_no_draw_has_no_best(n: float) -> None:
    with pytest.raises(StatisticsError, match="1 or more draws"):
        expected_best_of(VALUES, n)
