"""The trend over sizes against the regression that everybody has."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from paribus.statistics import slopes, trend

SIZES = [110_784, 461_000, 1_611_136, 3_020_000]


def test_slopes_are_those_of_scipy_s_regression() -> None:
    effects = np.random.default_rng(0).normal(size=(4, 6))
    found = slopes(SIZES, effects)
    expected = [stats.linregress(np.log10(SIZES), effects[:, s])[0] for s in range(6)]
    assert found == pytest.approx(expected, rel=1e-12)


def test_an_effect_that_halves_has_its_slope_and_noise_its_interval() -> None:
    x = np.log10(SIZES)
    exact = np.tile((0.1 - 0.03 * (x - x[0]))[:, None], (1, 5))
    noise = np.random.default_rng(1).normal(0, 0.002, size=(4, 5))
    says = trend(SIZES, exact + noise)
    assert says.mean == pytest.approx(-0.03, abs=0.004)
    alone = slopes(SIZES, exact + noise)
    ours = stats.ttest_1samp(alone, 0.0).confidence_interval(0.95)
    assert (says.t_interval.low, says.t_interval.high) == pytest.approx(tuple(ours))
