"""Two stages combined: known answers, the interval that inverts the test, and its error."""

import math

import numpy as np
import pytest
from scipy.special import ndtri, stdtr
from scipy.stats import combine_pvalues

from paribus.statistics import (
    InverseNormal,
    StatisticsError,
    error_of_either,
    paired_t,
    seed_test,
    stage_weights,
)


def combined(*stages, pairs=None):
    tests = tuple(seed_test(deltas, seed=0) for deltas in stages)
    return InverseNormal(tests, stage_weights(pairs or tuple(len(s) for s in stages)))


def test_weights_are_roots_of_shares():
    assert stage_weights((5, 15)) == pytest.approx((0.5, math.sqrt(0.75)))


def test_p_is_that_of_the_weighted_stouffer_method():
    rng = np.random.default_rng(1)
    stages = rng.normal(0.5, 1, 6), rng.normal(0.2, 1, 11)
    both = combined(*stages)
    p = [paired_t(stage).one_sided_p(0.1, greater=True) for stage in stages]
    expected = combine_pvalues(p, "stouffer", weights=np.sqrt([6, 11])).pvalue
    assert both.one_sided_p(0.1, greater=True) == pytest.approx(expected)


def test_the_interval_inverts_the_test_and_holds_the_estimate():
    rng = np.random.default_rng(2)
    for _ in range(40):
        both = combined(rng.normal(0.3, 1, 5), rng.normal(1.3, 0.1, 9))
        for level in (0.9, 0.95, 0.99):
            interval = both.interval(level)
            assert interval.low < both.mean < interval.high
            assert both.p_value(interval.low) == pytest.approx(1 - level)
            assert both.p_value(interval.high) == pytest.approx(1 - level)
            assert (0.0 in interval) == (both.p_value() > 1 - level)


def test_many_pairs_of_one_spread_are_as_good_as_one_sample():
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.1, 1, 400), rng.normal(0.1, 1, 600)
    both, one = combined(first, second), paired_t(np.concatenate([first, second]))
    assert both.mean == pytest.approx(one.mean, abs=0.003)
    assert both.interval().low == pytest.approx(one.interval().low, abs=0.005)
    assert both.interval().high == pytest.approx(one.interval().high, abs=0.005)
    assert both.detectable(power=0.8, alpha=0.05) == pytest.approx(
        seed_test(np.concatenate([first, second]), seed=0).detectable(power=0.8, alpha=0.05),
        rel=0.05,
    )


def test_a_second_stage_of_any_size_chosen_beforehand_holds_the_level():
    rng, studies = np.random.default_rng(4), 100_000
    z = []
    for n in (5, 10):
        deltas = rng.standard_normal((studies, n))
        t = deltas.mean(axis=1) / (deltas.std(axis=1, ddof=1) / math.sqrt(n))
        z.append(-ndtri(stdtr(n - 1, -t)))
    first, second = stage_weights((5, 10))
    total = np.abs(first * z[0] + second * z[1]) > 1.96
    assert total.mean() == pytest.approx(0.05, abs=0.0025)
    # Where the first stage could have been claimed as well, the two have this chance together.
    either = total | (np.abs(z[0]) > 1.96)
    assert either.mean() == pytest.approx(error_of_either((first, second)), abs=0.003)
    given_nothing = total[np.abs(z[0]) <= 1.96].mean()
    assert given_nothing < 0.05


def test_the_price_of_a_second_look_is_the_published_one():
    """Armitage, McPherson and Rowe (1969), table 2: 0.083 for two equal stages at 5%."""
    assert error_of_either(stage_weights((10, 10)), 0.05) == pytest.approx(0.083, abs=0.0005)
    assert error_of_either(stage_weights((10, 10)), 0.01) == pytest.approx(0.018, abs=0.0005)


def test_stages_that_agree_exactly_are_their_common_value():
    both = combined([0.5, 0.5, 0.5], [0.5, 0.5])
    assert both.constant and both.mean == 0.5
    assert both.interval().low == pytest.approx(0.5)
    assert both.p_value() < 1e-6


def test_an_unbounded_stage_leaves_an_interval_without_ends():
    """The gate cannot reject with three pairs."""
    tests = tuple(seed_test(d, "gate", seed=0) for d in ([1.0, 2.0, 2.5], [1.0, 1.4, 2.0]))
    interval = InverseNormal(tests, stage_weights((3, 3))).interval(0.999)
    assert interval.low == -math.inf and interval.high == math.inf


def test_weights_that_cannot_be_are_refused():
    tests = (seed_test([1.0, 2.0], seed=0),) * 2
    with pytest.raises(StatisticsError, match="do not sum to 1"):
        InverseNormal(tests, (0.9, 0.9))
    with pytest.raises(StatisticsError, match="2 stages have 1 weights"):
        InverseNormal(tests, (1.0,))
    with pytest.raises(StatisticsError, match="pairs of a stage"):
        stage_weights((1, 5))
