"""Grubbs' test for one outlier, against the published table of its critical values."""

import math

import numpy as np
import pytest
from scipy import stats

from paribus.statistics.outliers import outlier, skewness

# Critical values of the two-sided test (Grubbs and Beck 1972, Technometrics 14, 847-854, table I:
# its one-sided level of 2.5% is 5% of both sides), by the number of values, to three decimals.
TABLE = {4: 1.481, 5: 1.715, 6: 1.887, 7: 2.020, 8: 2.126, 9: 2.215, 10: 2.290}


def at_distance(g: float, n: int) -> list[float]:
    """Return n values of which the last lies g standard deviations from their mean.

    Of n - 1 others, at mean 0, half (or half but one) lie at 1 and at -1. With the last at x, the
    distance is d = x (n - 1) / n, and the sum of squares is s + x^2 (n - 1) / n; g^2 = d^2 (n - 1)
    over that sum is solved for x.
    """
    others = [float((-1) ** i) for i in range((n - 1) // 2 * 2)] + [0.0] * ((n - 1) % 2)
    s, k = sum(x * x for x in others), (n - 1) / n
    x2 = g * g * s / (k * k * (n - 1) - g * g * k)
    return [*others, math.sqrt(x2)]


@pytest.mark.parametrize("n", list(TABLE))
def test_the_critical_value_is_that_of_the_table(n):
    below, above = (at_distance(TABLE[n] + shift, n) for shift in (-0.001, 0.001))
    for values, shift in ((below, -0.001), (above, 0.001)):
        x = np.array(values)
        assert (x[-1] - x.mean()) / x.std(ddof=1) == pytest.approx(TABLE[n] + shift, abs=1e-9)
    assert outlier(below, alpha=0.05) is None
    assert outlier(above, alpha=0.05) == n - 1


def test_the_level_is_that_of_both_sides_and_one_per_cent_by_default():
    """For n = 5 the table has 1.764 at 1% and 1.715 at 5%."""
    between, beyond = at_distance(1.74, 5), at_distance(1.7645, 5)
    assert outlier(between, alpha=0.05) == 4
    assert outlier(between) is None
    assert outlier(at_distance(1.7625, 5)) is None
    assert outlier(beyond) == 4


def test_an_outlier_is_found_on_either_side_wherever_it_stands():
    values = at_distance(1.78, 5)
    for place in range(5):
        moved = [*values[:4][:place], values[4], *values[:4][place:]]
        for scale in (1.0, -1.0, 1e-6, -1e6):
            assert outlier([scale * x for x in moved]) == place
            assert outlier([100 * abs(scale) + scale * x for x in moved]) == place


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [1.0, 100.0],  # two values are equally far from their mean
        [0.5] * 5,
        [0.0] * 5,
        [1.0, 2.0, 3.0, 4.0, 5.0],
    ],
)
def test_there_is_none_where_no_value_stands_apart(values):
    assert outlier(values) is None


def test_of_normal_values_one_in_twenty_has_one_at_five_per_cent():
    draws = np.random.default_rng(5).normal(size=(4_000, 6))
    found = np.mean([outlier(row, alpha=0.05) is not None for row in draws])
    assert found == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 4_000))


def test_skewness_is_that_of_scipy_at_any_scale():
    values = np.random.default_rng(1).lognormal(size=12)
    expected = stats.skew(values, bias=False)
    for scale in (1.0, -1e-9, 1e150):
        skew, error = skewness(scale * values)
        assert skew == pytest.approx(math.copysign(1, scale) * expected)
        assert error == pytest.approx(0.637302, abs=1e-6)  # of n = 12
    assert skewness([1.0, 1.0, 1.0]) == skewness([1.0, 2.0]) == (0.0, 0.0)
