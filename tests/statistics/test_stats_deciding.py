"""The test that decides: near-ties, power of itself, and the laws of its error rates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paribus.statistics import (
    PairedContrast,
    StatisticsError,
    minimum_detectable_effect,
    paired_contrast,
    paired_t_power,
    power_error,
    required_pairs,
    seed_test,
)
from paribus.statistics.bootstrap import sampled_plan
from paribus.statistics.power import RESAMPLES, SEED, SIMULATE_TO, _studentized, power_of

SCORES = np.array([3.10, 3.14, 3.09, 3.12, 3.11])
NEAR_TIES = [
    [1.08, 1.09, 1.12, 1.1201, 1.1202],
    [0.5, 0.52, 0.52, 0.52, 0.52],
    [0.5, 0.5, 0.5, 0.5, 0.5],
]


def contrast(deltas: list[float], **options) -> PairedContrast:
    return paired_contrast(SCORES, SCORES + deltas, seed=0, **options)


@pytest.mark.parametrize("deltas", NEAR_TIES)
def test_near_ties_are_effects_and_their_intervals_say_so(deltas: list[float]) -> None:
    says = contrast(deltas).decided
    assert 0 < says.p_value < 1e-6
    assert says.interval.low > 0.49
    assert math.isfinite(says.interval.high)
    assert says.interval.high - says.interval.low < 0.06


@pytest.mark.parametrize(("deltas", "p"), [*zip(NEAR_TIES[:2], (0.15552, 0.65536), strict=True)])
def test_the_gate_shows_its_own_interval_where_it_keeps_zero(deltas: list[float], p: float) -> None:
    """Where the bootstrap cannot tell near-ties, its interval says so beside its p."""
    says = contrast(deltas, test="gate").decided
    assert says.p_value == pytest.approx(p, abs=1e-12)
    assert 0 in says.interval


def test_other_tests_stand_beside_the_one_that_decides() -> None:
    assert contrast(NEAR_TIES[0]).others.keys() == {"studentized bootstrap"}
    assert contrast(NEAR_TIES[0], test="gate").others.keys() == {
        "paired t",
        "studentized bootstrap",
    }
    six = paired_contrast(np.arange(6.0), np.arange(6.0) ** 1.1, seed=0)
    assert "exact sign flip" in six.others
    assert six.others["exact sign flip"] >= six.sign_flip_floor == 2**-5


def test_an_unknown_test_is_named() -> None:
    with pytest.raises(StatisticsError, match="'t-test' is not one of"):
        seed_test([1, 2, 3], "t-test", seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "gate", "alpha"), [(5, 0.59, 0.05), (10, 0.70, 0.025)])
def test_the_gates_power_is_its_own(n: int, gate: float, alpha: float) -> None:
    """Where 80% is stated for the t, the gate has what an audit measured (design notes)."""
    effect = minimum_detectable_effect(n, alpha=alpha)
    assert paired_t_power(effect, n, alpha=alpha) == pytest.approx(0.8, abs=1e-6)
    found = power_of(effect, n, alpha=alpha, test="gate")
    assert abs(found - gate) <= 4 * power_error("gate", gate) + 0.01


def test_what_the_gate_detects_it_detects() -> None:
    """The stated effect, simulated anew with the test itself."""
    effect = minimum_detectable_effect(5, test="gate")
    drawn = np.random.default_rng(7).normal(effect, 1, size=(400, 5))
    rejected = np.mean([seed_test(row, "gate", seed=0).p_value() <= 0.05 for row in drawn])
    assert abs(rejected - 0.8) <= 4 * math.hypot(power_error("gate"), 0.02)
    assert minimum_detectable_effect(3, test="gate") == math.inf


def test_simulated_studies_are_resampled_as_the_test_does() -> None:
    rows = np.random.default_rng(1).normal(size=(3, 5))
    low, high = _studentized(rows, 0.05)
    for row, below, above in zip(rows, low, high, strict=True):
        test = seed_test(row, "gate", seed=0)
        interval = test.bootstrap.studentized_interval(0.95)
        error = test.t.standard_error
        assert interval.low == pytest.approx(test.mean - above * error)
        assert interval.high == pytest.approx(test.mean - below * error)
    assert sampled_plan(10, SEED, RESAMPLES).total == RESAMPLES + 1


def test_pairs_needed_are_of_the_test_that_decides() -> None:
    of_t, of_gate = required_pairs(1.0), required_pairs(1.0, test="gate")
    assert of_t == 10
    assert of_t < of_gate <= 13
    assert power_of(1.0, of_gate, test="gate") >= 0.8 > power_of(1.0, of_gate - 1, test="gate")
    beyond = required_pairs(0.2, test="gate")
    assert beyond == required_pairs(0.2) > SIMULATE_TO


LAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "lognormal, sigma 0.5": lambda rng, shape: rng.lognormal(0, 0.5, shape) - np.exp(0.125),
    "lognormal, sigma 1": lambda rng, shape: rng.lognormal(0, 1, shape) - np.exp(0.5),
}
# Per cent false positives at n = 5 that `statistics.deciding` states.
STATED = {
    "normal": {"paired_t": 5.0, "gate": 2.9},
    "lognormal, sigma 0.5": {"paired_t": 8.5, "gate": 5.3},
    "lognormal, sigma 1": {"paired_t": 17.8, "gate": 9.9},
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("studies", [500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_stated_error_rates_are_those_of_a_named_law(law: str, studies: int) -> None:
    rows = LAWS[law](np.random.default_rng(11), (studies, 5))
    for name, stated in STATED[law].items():
        found = np.mean([seed_test(row, name, seed=0).p_value() <= 0.05 for row in rows])
        rate = stated / 100
        assert abs(found - rate) <= 4 * math.sqrt(rate * (1 - rate) / studies) + 0.001, name
