"""False-positive rates of the methods, beside those that the inference plan states.

A reduced size runs always; the full size is marked slow. A rate agrees when it lies within 4
Monte-Carlo standard errors (of our simulation; the plan's own is on top of that and not counted) of
the plan's, plus half a unit of the plan's last printed digit.
"""

import numpy as np
import pytest

from paribus.statistics import paired_bootstrap, paired_t, sign_flip

PRINTED = 0.0005
PLANS = 16  # resampling plans that the data sets take in turn
METHODS = ("percentile", "studentized", "t", "sign flip")

# Per cent false positives at a nominal 5, normal differences (the plan's table). Its studentized
# entry at n = 3, 18.9, drops the resamples of zero SD; see the test at the end of this file.
NORMAL = {
    3: {"percentile": 25.1, "t": 4.8, "sign flip": 0},
    5: {"percentile": 15.8, "studentized": 5.1, "t": 5.0, "sign flip": 0},
    10: {"percentile": 9.5, "studentized": 4.9, "t": 4.8, "sign flip": 4.8},
    20: {"percentile": 7.1, "studentized": 5.1, "t": 4.9, "sign flip": 4.8},
}
# The same under skew. The plan prints the worst of three laws; where lognormal differences with
# sigma 0.5 are that law, the numbers are these.
SKEWED = {3: {"t": 7.7}, 5: {"t": 8.5}, 10: {"t": 7.9}, 20: {"t": 7.0}}
VERY_SKEWED = {5: {"t": 17.8}}  # sigma 1, as `statistics.t_test` states
PLAN = {"normal": NORMAL, "lognormal": SKEWED, "sigma 1": VERY_SKEWED}


def draw(law: str, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    if law == "normal":
        return rng.standard_normal(shape)
    sigma = 0.5 if law == "lognormal" else 1.0
    return rng.lognormal(0, sigma, shape) - np.exp(sigma**2 / 2)


def false_positives(law: str, n: int, trials: int) -> dict[str, float]:
    hits = np.zeros(len(METHODS))
    for trial, deltas in enumerate(draw(law, np.random.default_rng([2024, n]), (trials, n))):
        # A new plan every time costs most of the run; one plan for all would be a common error.
        studentized_p, percentiles = paired_bootstrap(deltas, seed=trial % PLANS)
        t_p = paired_t(deltas).p_value()
        hits += (
            0 not in percentiles,
            studentized_p <= 0.05,
            t_p <= 0.05,
            sign_flip(deltas)[0] <= 0.05,
        )
    return dict(zip(METHODS, hits / trials, strict=True))


def assert_agrees(ours: float, plan_per_cent: float, trials: int, what: str) -> None:
    plan = plan_per_cent / 100
    error = np.sqrt(plan * (1 - plan) / trials)
    assert abs(ours - plan) <= 4 * error + PRINTED, f"{what}: {ours:.4f}, plan {plan:.4f}"


TRIALS = {3: 600, 5: 600, 10: 200, 20: 100}
ROWS = [(law, n) for law, rates in PLAN.items() for n in rates]


@pytest.mark.parametrize(("law", "n"), ROWS)
@pytest.mark.parametrize("is_full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rates_reproduce_the_plan(law, n, is_full):
    trials = 20_000 if is_full else TRIALS[n]
    ours = false_positives(law, n, trials)
    for method, rate in PLAN[law][n].items():
        assert_agrees(ours[method], rate, trials, f"{law}, {method}, n = {n}")


@pytest.mark.parametrize("trials", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_intervals_cover_a_true_effect(trials):
    """Coverage away from 0, at n = 7."""
    effect, covered = 0.8, 0
    for deltas in np.random.default_rng(5).normal(effect, 1, size=(trials, 7)):
        covered += effect in paired_t(deltas).interval()
    assert_agrees(covered / trials, 95, trials, "t coverage")
