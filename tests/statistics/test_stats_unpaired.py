"""Runs that are no pairs: published answers, SciPy's, error rates by simulation, awkward cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as hs
from scipy import stats

from paribus.statistics import (
    TTest,
    event_rates,
    unpaired_contrast,
    welch,
)
from paribus.statistics.power import t_power

# R datasets::sleep (Student 1908), as t.test(extra ~ group, data = sleep) takes it.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
# Of the article on Welch's t-test in the English Wikipedia: unequal variances, and the smaller
# sample the more variable one, then the less variable one; t, degrees of freedom and p as printed.
EXAMPLES = [
    (
        [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8],
        [
            21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8,
            20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8,
        ],
        (-1.57, 9.9, 0.149),
    ),
    (
        [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0],
        [
            28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7,
            23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4, 24.0, 13.2,
        ],
        (-2.22, 24.5, 0.036),
    ),
]  # fmt: skip


def test_sleep_unpaired_agrees_with_r():
    test = welch(DRUG_2, DRUG_1)
    assert test.statistic() == pytest.approx(-1.8608, abs=5e-5)
    assert test.df == pytest.approx(17.776, abs=5e-4)
    assert test.p_value() == pytest.approx(0.07939, abs=5e-6)
    interval = test.interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((-3.3654832, 0.2054832), abs=5e-8)


def test_sleep_effect_size_agrees_with_effsize():
    contrast = unpaired_contrast(DRUG_2, DRUG_1)
    # effsize::cohen.d(extra ~ group, sleep): -0.8321811, times J(18).
    # J(18) = 8! / (3 Gamma(8.5)), Hedges (1981).
    assert contrast.g == pytest.approx(-0.8321811 * 0.957647, abs=5e-6)
    # effectsize::cohens_d(extra ~ group, sleep): [-1.74, 0.09], times J(18).
    ends = contrast.g_interval()
    assert ends is not None
    assert (ends.low, ends.high) == pytest.approx((-1.74 * 0.957647, 0.09 * 0.957647), abs=0.006)
    assert unpaired_contrast(DRUG_2[:4], DRUG_1).g_interval() is None


@pytest.mark.parametrize(("first", "second", "printed"), EXAMPLES)
def test_published_examples(first, second, printed):
    test = welch(second, first)
    t, df, p = printed
    assert test.statistic() == pytest.approx(t, abs=5e-3)
    assert test.df == pytest.approx(df, abs=5e-2)
    assert test.p_value() == pytest.approx(p, abs=5e-4)


def of_sds(first: float, second: float, n_first: int, n_second: int) -> TTest:
    """Welch's t of arms with these SDs."""
    arms = []
    for sd, n in ((first, n_first), (second, n_second)):
        scores = np.arange(n, dtype=float)
        arms.append(scores * sd / scores.std(ddof=1))
    return welch(*arms)


def power_of(effect: float, test: TTest) -> float:
    return t_power(test.df, effect / test.standard_error, 0.05)


def test_power_agrees_with_r():
    # R's power.t.test(n = 20, delta = 1, strict = TRUE) and power.t.test(power = .90, delta = 1).
    assert power_of(1.0, of_sds(1.0, 1.0, 20, 20)) == pytest.approx(0.8689530, abs=5e-8)
    needed = of_sds(1.0, 1.0, 5, 9).pairs_needed(1.0, power=0.9, alpha=0.05)
    assert needed == math.ceil(22.02110)
    test = of_sds(0.5, 2.0, 7, 12)
    detected = test.detectable(power=0.8, alpha=0.05)
    assert power_of(detected, test) == pytest.approx(0.8, abs=1e-9)


def test_tasting_tea():
    # Fisher (1935): three of four cups told right. The two-sided p is R's fisher.test.
    assert event_rates([1, 0, 0, 0], [1, 1, 1, 0], paired=False).p_value == pytest.approx(34 / 70)


samples = hs.lists(hs.integers(-64, 64).map(lambda n: n / 16), min_size=2, max_size=9)


@given(samples, samples, hs.floats(0.05, 4))
def test_scipy_agrees(first, second, margin):
    contrast = unpaired_contrast(first, second, margin=margin)
    test, says = welch(first, second), contrast.decided
    if contrast.decided.constant:
        assert says.p_value == 1 if contrast.mean == 0 else says.p_value < 1e-6
        return
    theirs = stats.ttest_ind(second, first, equal_var=False)
    assert test.df == pytest.approx(theirs.df)
    assert says.p_value == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-14)
    interval = theirs.confidence_interval(0.95)
    assert (says.interval.low, says.interval.high) == pytest.approx((interval.low, interval.high))
    tost = max(
        stats.ttest_ind(
            second, np.add(first, -margin), equal_var=False, alternative="greater"
        ).pvalue,
        stats.ttest_ind(second, np.add(first, margin), equal_var=False, alternative="less").pvalue,
    )
    assert says.equivalence_p == pytest.approx(tost, rel=1e-6, abs=1e-12)
    assert (0 in says.interval) == (says.p_value > 0.05) or says.p_value == pytest.approx(0.05)
    # Order of runs and of arms, shift and scale.
    again = welch(list(reversed(first)), second)
    assert again.p_value() == pytest.approx(test.p_value(), rel=1e-9)
    assert welch(second, first).p_value() == pytest.approx(test.p_value(), rel=1e-9)
    moved = welch(np.multiply(first, 8) + 32, np.multiply(second, 8) + 32)
    assert moved.p_value() == pytest.approx(test.p_value(), rel=1e-6)


@given(samples, samples)
def test_fisher_agrees_with_scipy(first, second):
    a, b = np.array(first) > 0, np.array(second) > 0
    table = [[a.sum(), (~a).sum()], [b.sum(), (~b).sum()]]
    assert event_rates(a, b, paired=False).p_value == pytest.approx(
        stats.fisher_exact(table).pvalue
    )


def test_equal_runs_are_an_effect_at_the_resolution():
    same = unpaired_contrast([2.0] * 5, [2.0] * 5, margin=0.1)
    assert same.decided.constant and same.decided.p_value == 1
    apart = unpaired_contrast([2.0] * 5, [2.5] * 5, resolution=0.5)
    assert apart.decided.p_value > 1e-6 and apart.decided.detectable == 0.5
    # One arm that does not vary leaves the other's spread, and its degrees of freedom.
    assert welch([2.0] * 5, [2.0, 2.5, 3.0]).df == pytest.approx(2)
