"""Boundaries of looks: published ones, two oracles, and the error over simulated studies."""

import math

import numpy as np
import pytest
from scipy.special import beta as beta_function, ndtri, stdtr
from scipy.stats import norm, skew

from paribus.statistics import Looks, OneLook, paired_t, skewness

from .simulated_looks import characteristics

OURS = Looks((5, 8, 12, 20))
MANY = 10_000  # pairs of a look, where t is normal
QUICK = 2**18  # simulated studies, where a test needs no more

# Critical values of z, two-sided level .05 (one-sided .025), equal spacing: as R's ldbounds and
# rpact ("asOF") print them.
PUBLISHED = {
    5: (4.8769, 3.3569, 2.6803, 2.2898, 2.0310),
    3: (3.7103, 2.5114, 1.9930),
}

SLOW = pytest.mark.slow


def at_look(test, plan, look):
    """Return a test of all pairs as it is at one look of a plan."""
    return OneLook(plan, look).decide(lambda _: test)


def normal_boundaries(fractions, spent):
    """One-sided boundaries of z by numerical integration (Armitage, McPherson and Rowe 1969)."""
    found, grid, density, before = [], None, None, 0.0
    for k, (t, total) in enumerate(zip(fractions, spent, strict=True)):
        if k == 0:
            bound = float(norm.isf(total))
        else:
            low, high = 1.0, 8.0
            step = math.sqrt(t - fractions[k - 1])
            for _ in range(40):
                bound = (low + high) / 2
                crossing = norm.sf((bound * math.sqrt(t) - grid) / step) @ density
                low, high = (low, bound) if crossing < total - before else (bound, high)
        new = np.linspace(-8 * math.sqrt(t), bound * math.sqrt(t), 801)
        width = np.full(new.size, new[1] - new[0])
        width[[0, -1]] /= 2
        if k == 0:
            values = norm.pdf(new, scale=math.sqrt(t))
        else:
            values = norm.pdf((new[:, None] - grid) / step) @ density / step
        grid, density, before = new, values * width, total
        found.append(bound)
    return found


@pytest.mark.parametrize("n_looks", PUBLISHED)
def test_boundaries_at_many_pairs_are_the_published_ones(n_looks):
    looks = Looks(tuple(MANY * k for k in range(1, n_looks + 1)), studies=QUICK)
    ours = [-ndtri(boundary.nominal_p / 2) for boundary in looks.boundaries(0.05)]
    assert ours == pytest.approx(PUBLISHED[n_looks], abs=0.02)
    oracle = normal_boundaries(looks.fractions, looks.spent(0.025))
    assert oracle == pytest.approx(PUBLISHED[n_looks], abs=0.0002)


def test_boundaries_at_few_pairs_agree_with_exact_integration():
    """Two looks of the t, without simulation.

    W = sum / sqrt(n x sum of squares) is a Markov chain under no effect, since it is independent of
    the sum of squares (Basu): W' = a sqrt(B) W + b sqrt(1 - B) V, where V is W of the new pairs
    alone, B is Beta(n / 2, m / 2), a^2 = n / (n + m) and b^2 = m / (n + m).
    """
    n, m, level = 5, 4, 0.025
    looks = Looks((n, n + m))
    first, second = (boundary.t for boundary in looks.boundaries(2 * level))
    w = [t / math.sqrt(t * t + df) for t, df in ((first, n - 1), (second, n + m - 1))]
    nodes, weights = np.polynomial.legendre.leggauss(300)
    angle = (nodes + 1) * math.pi / 4  # B = cos^2(angle)
    cos, sin = np.cos(angle), np.sin(angle)
    density = 2 * cos ** (n - 1) * sin ** (m - 1) / beta_function(n / 2, m / 2)
    # W = sin(u), whose density is proportional to cos(u)^(n - 2), up to the first boundary.
    top = math.asin(w[0])
    u = (nodes + 1) / 2 * (top + math.pi / 2) - math.pi / 2
    start = np.cos(u) ** (n - 2) / beta_function(0.5, (n - 1) / 2)
    a, b = math.sqrt(n / (n + m)), math.sqrt(m / (n + m))
    v = np.clip((w[1] - a * cos * np.sin(u)[:, None]) / (b * sin), -1 + 1e-12, 1 - 1e-12)
    beyond = stdtr(m - 1, -math.sqrt(m - 1) * v / np.sqrt(1 - v * v))
    inner = beyond @ (weights * density) * math.pi / 4
    crossing = float(weights @ (start * inner)) * (top + math.pi / 2) / 2
    spent = looks.spent(level)
    assert crossing == pytest.approx(spent[1] - spent[0], abs=2e-4)
    # Where t is taken for normal, the same plan has other boundaries.
    normal = normal_boundaries(looks.fractions, spent)
    assert first > 1.3 * normal[0]


def test_the_first_boundary_is_exact_and_no_boundary_is_below_what_it_spends():
    looks = Looks((5, 8, 12, 20), studies=QUICK)
    for alpha in (0.5, 0.05, 0.001, 1e-7):
        found = looks.boundaries(alpha)
        assert found[0].nominal_p == pytest.approx(found[0].spent, rel=0.01)
        added = np.diff([0.0, *(boundary.spent for boundary in found)])
        for boundary, least in zip(found, added, strict=True):
            assert boundary.nominal_p >= least * 0.98
            assert boundary.nominal_p <= boundary.spent * 1.02
        assert found[-1].spent == pytest.approx(alpha)


def test_boundaries_rise_with_the_level_and_levels_invert_them():
    looks = Looks((5, 8, 12, 20), studies=QUICK)
    levels = np.geomspace(1e-12, 0.299, 400)
    for k in range(4):
        bounds = np.array([looks.bound(k, level) for level in levels])
        assert (np.diff(bounds) >= 0).all()
        there = bounds > 0
        assert looks.level(k, bounds[there]) == pytest.approx(levels[there], rel=1e-6)
    assert looks.level(3, np.array([0.6]))[0] == pytest.approx(0.6, abs=0.02)
    assert looks.level(0, np.array([0.5]))[0] == 1.0  # no level would stop here


@pytest.mark.parametrize("contrasts", [pytest.param(1, marks=SLOW), 2, pytest.param(3, marks=SLOW)])
def test_the_error_is_held_whatever_stops(contrasts):
    """40,000 studies without an effect, arms sharing a baseline: differences drawn one by one,
    boundaries from running sums. Stopped for effects alone, and for equivalence too."""
    studies = 40_000
    error = 3.5 * math.sqrt(0.05 * 0.95 / studies)
    plain = characteristics(OURS, (0.0,) * contrasts, studies=studies)
    stops = characteristics(OURS, (0.0,) * contrasts, margin=0.6, studies=studies)
    assert plain.any_effect < 0.05 + error
    assert stops.any_effect < 0.05 + error
    assert stops.pairs[0] < plain.pairs[0]
    if contrasts == 1:
        assert plain.any_effect > 0.05 - error  # nothing is given away


@pytest.mark.parametrize("effects", [pytest.param((0.0,) * 4, marks=SLOW), (4.0, 0.0, 0.0, 0.0)])
def test_what_an_early_look_rejects_is_kept_and_the_error_is_held(effects):
    """Two contrasts on two endpoints: each goes on until both endpoints are resolved, and passes
    the level of what was rejected on (Maurer and Bretz 2013). One true effect, or none."""
    studies = 20_000
    found = characteristics(OURS, effects, endpoints=2, margin=0.3, studies=studies)
    assert found.any_false_effect < 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / studies)
    assert found.any_false_effect > 0.02
    if effects[0]:
        # Rejected at an early look and kept while the other endpoint goes on to the last.
        alone = characteristics(OURS, effects[:1], alpha=0.05 / 4, studies=studies)
        assert found.effects[0] == pytest.approx(1.0, abs=0.001) and alone.pairs[0] < 10
        assert found.pairs[0] > alone.pairs[0] + 2


def test_equivalence_over_looks_holds_its_level_at_the_margin():
    at_margin = characteristics(OURS, (1.0, 1.0), margin=1.0, studies=40_000)
    assert at_margin.any_equivalent < 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / 40_000)
    assert at_margin.any_equivalent > 0.03


def test_what_a_look_says_has_one_test_behind_it():
    rng = np.random.default_rng(5)
    deltas = rng.normal(0.8, 1.0, 12)
    for look in range(4):
        says = at_look(paired_t(deltas), OURS, look)
        for level in (0.8, 0.9, 0.95):
            interval = says.interval(level)
            assert (0.0 in interval) == (says.p_value() > 1 - level)
            assert says.p_value(interval.low) == pytest.approx(1 - level)
            tail = says.one_sided_p(interval.high, greater=False)
            assert tail == pytest.approx((1 - level) / 2)
        plain = paired_t(deltas).interval(0.95)
        assert says.interval(0.95).low <= plain.low + 1e-9
        assert says.interval(0.95).high >= plain.high - 1e-9


def test_a_look_too_early_to_reject_has_an_interval_without_ends():
    says = at_look(paired_t([1.0, 1.1, 1.2, 1.05, 0.9]), Looks((5, 200)), 0)
    interval = says.interval(0.95)
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert says.p_value() > 0.05
    assert says.detectable(power=0.8, alpha=0.05) == math.inf


def test_skewness_is_that_of_scipy_at_any_scale():
    values = np.random.default_rng(1).lognormal(size=12)
    expected = skew(values, bias=False)
    for scale in (1.0, -1e-9, 1e150):
        g1, error = skewness(scale * values)
        assert g1 == pytest.approx(math.copysign(1, scale) * expected)
        assert error == pytest.approx(0.637302, abs=1e-6)  # of n = 12
    assert skewness([1.0, 1.0, 1.0]) == skewness([1.0, 2.0]) == (0.0, 0.0)
