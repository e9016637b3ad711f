"""What the package promises to its callers: errors, conventions at the edges, plain results."""

import doctest
import math
import pickle

import numpy as np
import pytest

import paribus.statistics as st

DELTA_FUNCTIONS = {
    "paired_t": st.paired_t,
    "paired_contrast": lambda d: st.paired_contrast(np.zeros(np.shape(d)), d, seed=0),
}


@pytest.mark.parametrize("name", DELTA_FUNCTIONS)
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([0.5], "n = 1"),
        ([], "n = 0"),
        ([0.1, math.nan, 0.2], r"\[1\] is nan"),
        ([0.1, 0.2, -math.inf], r"\[2\] is -inf"),
        ([[0.1, 0.2]], "2 dimensions"),
        ([1e200, 2.0], "rescale"),
    ],
)
def test_bad_scores_raise_one_line_that_names_them(name, bad, says):
    with pytest.raises(st.StatisticsError, match=says) as caught:
        DELTA_FUNCTIONS[name](bad)
    assert "\n" not in str(caught.value)


def test_arms_of_unequal_length_raise_one_line():
    with pytest.raises(st.StatisticsError, match="unpaired"):
        st.paired_contrast([1, 2], [1, 2, 3], seed=0)


@pytest.mark.parametrize("n", [2, 6, 9])
def test_identical_arms_give_p_of_one(n):
    arm = np.random.default_rng(n).normal(3, 0.1, size=n)
    result = st.paired_contrast(arm, arm, margin=0.01, seed=0)
    assert result.decided.constant and result.mean == 0 and result.g is None
    assert {result.decided.p_value, *(p for p, _ in result.others.values())} == {1}
    assert 0 in result.decided.interval
    assert result.decided.equivalence_p is not None and 0 < result.decided.equivalence_p < 1e-6


@pytest.mark.parametrize("n", [2, 6, 9])
def test_equal_differences_are_an_effect_at_the_resolution_of_the_measurement(n):
    arm = np.random.default_rng(n).normal(3, 0.1, size=n)
    result = st.paired_contrast(arm, arm + 0.1, margin=0.05, seed=0)  # constant up to rounding
    assert result.decided.constant and result.sd == 0
    assert 0 < result.decided.p_value == result.others["studentized bootstrap"][0] < 1e-10
    assert all(p == floor for p, floor in list(result.others.values())[1:])
    bounds = (result.decided.interval.low, result.decided.interval.high)
    assert bounds == pytest.approx((0.1, 0.1), abs=1e-12)
    assert result.decided.equivalence_p > 0.999
    assert result.decided.constant and result.decided.detectable < 1e-12


def test_a_coarse_measurement_has_a_coarse_resolution():
    """Five equal steps of a share of 48 items: the spread may be as large as the step."""
    step = 1 / 48
    fine = st.paired_contrast([0.5] * 5, [0.5 + step] * 5, seed=0)
    coarse = st.paired_contrast([0.5] * 5, [0.5 + step] * 5, seed=0, resolution=step)
    assert fine.decided.p_value < 1e-10
    from scipy.stats import t

    assert coarse.decided.p_value == pytest.approx(2 * t.sf(np.sqrt(5), df=4))
    assert 0 in coarse.decided.interval


def test_same_seed_same_answer_and_the_global_generator_is_untouched():
    rng = np.random.default_rng(3)
    arms = rng.normal(size=(2, 25))
    before = pickle.dumps(np.random.get_state())
    first = st.paired_contrast(*arms, seed=7)
    assert first == st.paired_contrast(*arms, seed=7)
    other = st.paired_contrast(*arms, seed=8)
    assert first.others != other.others
    assert pickle.dumps(np.random.get_state()) == before


def test_the_example_in_the_overview_is_true():
    assert doctest.testmod(st) == (0, 3)
