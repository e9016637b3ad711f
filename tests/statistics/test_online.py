"""LORD++ against the documented example of the R package onlineFDR, and its properties."""

from __future__ import annotations

import numpy as np
import pytest

from paribus.statistics import Lord, multiplicity

# The example of `?LORD` in onlineFDR (dsrobertson/onlineFDR), with its printed levels.
P = [
    *(2.90e-08, 0.06743, 0.01514, 0.08174, 0.00171, 3.60e-05, 0.79149, 0.27201, 0.28295),
    *(7.59e-08, 0.69274, 0.30443, 0.00136, 0.72342, 0.54757),
]
LEVELS = [
    *(0.0002675839, 0.0024664457, 0.0005732818, 0.0004872805, 0.0004059066, 0.0003447286),
    *(0.0029745013, 0.0008450114, 0.0007305648, 0.0006243143, 0.0032185913, 0.0010617227),
    *(0.0009256825, 0.0008019657, 0.0007059610),
]
FOUND = [0, 5, 9]
# The same with alpha = .1 and w0 = .05, in the order that the R code has drawn.
P_B = [
    *(2.90e-08, 0.06743, 0.01514, 0.08174, 0.00171, 0.27201, 3.60e-05, 0.79149, 7.59e-08),
    *(0.28295, 0.69274, 0.72342, 0.30443, 0.54757, 0.00136),
]
LEVELS_B = [
    *(0.0026758385, 0.0032577488, 0.0010775352, 0.0009078052, 0.0007616238, 0.0006517385),
    *(0.0005682672, 0.0058549106, 0.0016151293, 0.0067518870, 0.0023619734, 0.0020342733),
    *(0.0017477495, 0.0015277362, 0.0013569121),
]


def run(rule, p_values):
    """Return what a rule finds among p-values that arrive in order, and its levels."""
    found, levels = [], []
    for p in p_values:
        levels.append(rule.next_level(found))
        found.append(p <= levels[-1])
    return np.array(found), np.array(levels)


def slow(n):
    """Shares as in Javanmard and Montanari (2018), equation 31, the default of onlineFDR."""
    j = np.arange(1, n + 1)
    return 0.07720838 * np.log(np.maximum(j, 2)) / (j * np.exp(np.sqrt(np.log(j))))


@pytest.mark.parametrize(
    ("rule", "p", "levels", "places"),
    [
        (Lord(0.05, 0.005), P, LEVELS, FOUND),
        (Lord(0.1, 0.05), P_B, LEVELS_B, [0, 6, 8]),
    ],
)
def test_levels_are_those_of_the_r_package(rule, p, levels, places, monkeypatch):
    monkeypatch.setattr(multiplicity, "gamma", slow)
    found, spent = run(rule, p)
    np.testing.assert_allclose(spent, levels, atol=6e-11)
    assert np.flatnonzero(found).tolist() == places


def test_false_discovery_rate_of_independent_p_values():
    rng = np.random.default_rng(5)
    p = rng.uniform(size=(2_000, 40))
    real = rng.uniform(size=p.shape) < 0.5
    p[real] *= 1e-4
    found = np.array([run(Lord(0.05, 0.025), row)[0] for row in p])
    share = (found & ~real).sum(1) / np.maximum(found.sum(1), 1)
    assert share.mean() + 3 * share.std() / len(p) ** 0.5 < 0.05
    assert share.mean() > 0.002  # it does find falsely: the bound is used
