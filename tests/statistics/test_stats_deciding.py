"""The test that decides: near-ties, power of itself, and the laws of its error rates."""

import math

import numpy as np
import pytest

from paribus.statistics import RunContrast, paired_contrast, paired_t

SCORES = np.array([3.10, 3.14, 3.09, 3.12, 3.11])
NEAR_TIES = [
    [1.08, 1.09, 1.12, 1.1201, 1.1202],
    [0.5, 0.52, 0.52, 0.52, 0.52],
    [0.5, 0.5, 0.5, 0.5, 0.5],
]


def contrast(deltas: list[float], **options) -> RunContrast:
    return paired_contrast(SCORES, SCORES + deltas, seed=0, **options)


@pytest.mark.parametrize("deltas", NEAR_TIES)
def test_near_ties_are_effects_and_their_intervals_say_so(deltas):
    says = contrast(deltas).decided
    assert 0 < says.p_value < 1e-6
    assert says.interval.low > 0.49
    assert math.isfinite(says.interval.high)
    assert says.interval.high - says.interval.low < 0.06


def test_other_tests_stand_beside_the_one_that_decides():
    assert contrast(NEAR_TIES[0]).others.keys() == {"studentized bootstrap"}
    six = paired_contrast(np.arange(6.0), np.arange(6.0) ** 1.1, seed=0)
    p, floor = six.others["exact sign flip"]
    assert p >= floor == 2**-5


LAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "lognormal, sigma 0.5": lambda rng, shape: rng.lognormal(0, 0.5, shape) - np.exp(0.125),
    "lognormal, sigma 1": lambda rng, shape: rng.lognormal(0, 1, shape) - np.exp(0.5),
}
# Per cent false positives at n = 5 that `statistics.t_test` states.
STATED = {
    "normal": 5.0,
    "lognormal, sigma 0.5": 8.5,
    "lognormal, sigma 1": 17.8,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("studies", [500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_stated_error_rates_are_those_of_a_named_law(law, studies):
    rows = LAWS[law](np.random.default_rng(11), (studies, 5))
    found = np.mean([paired_t(row).p_value() <= 0.05 for row in rows])
    rate = STATED[law] / 100
    assert abs(found - rate) <= 4 * math.sqrt(rate * (1 - rate) / studies) + 0.001
