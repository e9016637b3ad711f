"""The root finder against SciPy's, on what it is used for and on what is awkward."""

import math

import pytest
from scipy.optimize import brentq

from paribus.statistics.distributions import noncentral_t_cdf, root

FUNCTIONS = {
    "cubic": (lambda x: x**3 - 2 * x - 5, 2.0, 3.0),
    "steep": (lambda x: math.atan(1e6 * (x - 0.3)), -1.0, 1.0),
    "ncp": (lambda ncp: noncentral_t_cdf(3.0, 9, ncp) - 0.975, -7.0, 20.0),
    "step": (lambda x: 1.0 if x > math.pi else -1.0, 0.0, 10.0),
    "falling": (lambda x: 2 - math.exp(x), 0.0, 5.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_roots_are_scipys(name):
    function, low, high = FUNCTIONS[name]
    calls = []

    def counted(x: float) -> float:
        calls.append(x)
        return function(x)

    found = root(counted, low, high)
    expected = brentq(function, low, high)
    assert found == pytest.approx(expected, abs=1e-10)
    assert len(calls) < 80


def test_ends_and_one_sign():
    assert root(lambda x: x, 0.0, 1.0) == 0.0 and root(lambda x: x - 1, 0.0, 1.0) == 1.0
    with pytest.raises(ValueError, match="one sign"):
        root(lambda x: x + 5, 0.0, 1.0)
