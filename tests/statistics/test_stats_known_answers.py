"""Answers known from outside this package, each with its source."""

import math

import numpy as np
import pytest

from paribus.statistics import (
    decided,
    holm,
    mcnemar,
    minimum_detectable_effect,
    paired_bootstrap,
    paired_contrast,
    paired_t,
    required_pairs,
    sign_flip,
)
from paribus.statistics.contrast import hedges_g
from paribus.statistics.power import noncentral_t_cdf, t_power
from paribus.statistics.t_test import paired_deltas


def paired_power(d_z: float, n: int) -> float:
    """Return the chance that n pairs detect an effect of `d_z` SDs of their differences at 5%."""
    return t_power(n - 1, abs(d_z) * math.sqrt(n), 0.05)


# R datasets::sleep (Student 1908): extra hours of sleep of ten patients under two drugs.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
GAINS = [0.1, 0.2, 0.3, 0.4, 0.5]
SLEEP = paired_deltas(DRUG_2, DRUG_1)
# R package boot's worked example of a mean.
SIXTEEN = [10, 12, 12.5, 12.5, 13.9, 15, 21, 22, 23, 34, 50, 81, 89, 121, 134, 213]
# Darwin's maize, crossed minus self-fertilized, eighths of an inch (Fisher 1935, section 17).
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_sleep_paired_t_agrees_with_r():
    test = paired_t(SLEEP)
    assert test.df == 9
    assert test.statistic() == pytest.approx(-4.062128, abs=5e-7)
    assert test.p_value() == pytest.approx(0.00283289, abs=5e-9)
    interval = test.interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((-2.459886, -0.700114), abs=5e-7)


def test_sleep_effect_size_sign_flip_and_equivalence():
    assert paired_contrast(DRUG_2, DRUG_1, seed=0).g == pytest.approx(-1.173925, abs=5e-7)
    # effectsize::hedges_g of the same pairs: [-1.94, -0.38].
    ends = paired_contrast(DRUG_2, DRUG_1, seed=0).g_interval()
    assert ends is not None
    assert (ends.low, ends.high) == pytest.approx((-1.94, -0.38), abs=0.005)
    assert sign_flip(SLEEP) == (4 / 1024, 2 / 1024)
    tost = decided(paired_t(SLEEP), "paired_t", margin=3)
    assert tost.equivalence_p == pytest.approx(0.00265557, abs=5e-9)


def test_boot_intervals_agree_with_r_within_monte_carlo_error():
    # R drew some thousand resamples and interpolates; two Monte-Carlo answers, so 2% at the ends.
    _, percentile = paired_bootstrap(SIXTEEN, seed=0, resamples=100_000)
    assert (percentile.low, percentile.high) == pytest.approx((28.86, 84.21), rel=0.01)


def test_percentile_of_five_values_enumerated():
    _, interval = paired_bootstrap(GAINS, seed=0)
    assert (interval.low, interval.high) == pytest.approx((0.18, 0.42), abs=1e-12)
    baseline = [3.0, 1.0, 2.0, 5.0, 4.0]
    contrast = paired_contrast(baseline, np.add(baseline, GAINS), seed=0)
    interval = contrast.percentile_interval
    assert (interval.low, interval.high) == pytest.approx((0.18, 0.42), abs=1e-12)


def test_studentized_bootstrap_of_three_values_by_hand():
    # Differences 0, 1, 5: mean 2, SD sqrt(7). Of 27 resamples, t* = (mean* - 2) / (SD* / sqrt 3):
    # (0,0,0) -inf, (1,1,1) -inf, (0,0,1) x3 -5, (0,1,1) x3 -4, (0,0,5) x3 -0.2, (0,1,5) x6 0,
    # (0,5,5) x3 0.8, (1,1,5) x3 0.25, (1,5,5) x3 1.25, (5,5,5) +inf.
    values = np.array([0.0, 1.0, 5.0])
    # Against 0, t = 2 / sqrt(7/3) = 1.309: only +inf lies at or above it.
    assert paired_bootstrap(values, seed=0)[0] == pytest.approx(2 / 27, abs=1e-15)
    # t = 1.2 lies below 1.25 (x3) and +inf.
    error = math.sqrt(7 / 3)
    assert paired_bootstrap(values - (2 - 1.2 * error), seed=0)[0] == pytest.approx(
        8 / 27, abs=1e-15
    )


def test_maize_sign_flip_agrees_with_fisher():
    # Fisher 1935, section 21: 863 of 32,768 sums reach the observed one; t = 2.148.
    assert sign_flip(MAIZE)[0] == 2 * 863 / 32_768
    assert paired_t(MAIZE).statistic() == pytest.approx(2.148, abs=5e-4)


def test_holm():
    np.testing.assert_allclose(
        holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("b", "c", "p"), [(0, 5, 0.0625), (0, 6, 0.03125), (1, 9, 0.021484375), (0, 0, 1), (3, 3, 1)]
)
def test_mcnemar(b, c, p):
    assert mcnemar(b, c) == pytest.approx(p, abs=1e-15)
    assert mcnemar(c, b) == mcnemar(b, c)


def test_pairs_for_eighty_per_cent_power():
    assert [required_pairs(d_z) for d_z in (0.5, 1.0, 1.5, 2.0)] == [34, 10, 6, 5]


def test_power_where_the_usual_libraries_return_nan():
    assert paired_power(2, 20) == pytest.approx(1, abs=1e-9)
    # scipy's lower tail exists here, only its far tail is NaN.
    assert 1 - paired_power(2, 20) == pytest.approx(4.5468e-11, rel=1e-3)
    grid = [paired_power(d, n) for d in (0.0, 0.1, 1, 3, 10, 100) for n in (2, 3, 20, 1000)]
    assert all(0 <= power <= 1 for power in grid)
    assert all(paired_power(0, n) == pytest.approx(0.05, abs=1e-10) for n in (2, 5, 100))


def test_noncentral_t_gives_r_power_t_test():
    # R ?power.t.test, first example: n = 20 per group, delta = 1: power = 0.8689528.
    critical = 2.0243941639119702  # qt(.975, 38)
    assert 1 - noncentral_t_cdf(critical, 38, math.sqrt(10)) == pytest.approx(0.8689528, abs=5e-8)


def test_detectable_effect_inverts_power():
    for n in (2, 5, 20):
        effect = minimum_detectable_effect(n, power=0.9)
        assert paired_power(effect, n) == pytest.approx(0.9, abs=1e-9)


def test_hedges_correction_in_closed_form():
    # J(2) = 1 / sqrt(pi); J(4) = sqrt(2 / pi) ... from Gamma(1), Gamma(1/2), Gamma(3/2).
    assert hedges_g(1, 1, 2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-14)
    assert hedges_g(1, 1, 4) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-14)
