"""The error of a tuned choice: known answers, then error rates of studies that are simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from paribus.statistics import (
    Stages,
    TunedArm,
    best_of,
    lack_of_fit,
    paired_contrast,
    parabola,
    redrawn_error,
    stage_weights,
    vertex_error,
)

finite = st.floats(-5, 5, allow_nan=False)
A, B = [3.10, 3.14, 3.09, 3.12, 3.11, 3.15], [3.06, 3.11, 3.07, 3.08, 3.08, 3.09]


@given(st.tuples(finite, finite, finite), st.floats(0.1, 3), st.floats(0.1, 3), finite)
def test_the_parabola_is_that_of_a_fit(y, left, right, at):
    x = [at - left, at, at + right]
    found, fit = parabola(x, y), np.polyfit(np.array(x) - at, y, 2)
    assert found.curvature == pytest.approx(fit[0], rel=1e-6, abs=1e-6)
    assert found.slope == pytest.approx(fit[1], rel=1e-6, abs=1e-6)
    assert x[0] <= found.vertex <= x[2]
    if fit[0] > 1e-3:
        assert found.vertex == pytest.approx(
            at + float(np.clip(-fit[1] / (2 * fit[0]), -left, right)), abs=1e-6
        )


@pytest.mark.parametrize(("y", "vertex"), [((0, 1, 2), 0.0), ((2, 1, 0), 2.0), ((1, 1, 1), 1.0)])
def test_without_a_least_value_inside_the_better_end_is_taken(y, vertex):
    assert parabola([0, 1, 2], y).vertex == vertex


def test_lack_of_fit_is_the_root_of_the_summed_squares_of_fitted_gains():
    """y = (x - 0.3)^2 gains 0.09 from x = 0 to its vertex, x^2 gains nothing."""
    x = [-1.0, 0.0, 1.0]
    y = np.repeat([[(place - 0.3) ** 2] for place in x], 3, axis=1)
    off, at = TunedArm(x, y, y), TunedArm(x, *[np.repeat([[2.0], [1.0], [2.0]], 3, axis=1)] * 2)
    assert lack_of_fit([at, off]) == pytest.approx(0.09)
    assert lack_of_fit([at, at]) == 0
    assert lack_of_fit([off, off, at], [1.0, -2.0, 1.0]) == pytest.approx(0.09 * math.sqrt(5))
    # Read off the endpoint's parabola, at the vertex of the one that chose.
    judged = TunedArm(x, y, 10 * y + 1)
    assert lack_of_fit([at, judged]) == pytest.approx(0.9)


def test_the_paired_t_with_a_choice_is_students_t_of_both_errors():
    d, choice = np.array(B) - np.array(A), 0.01
    error = math.hypot(d.std(ddof=1) / math.sqrt(len(d)), choice)
    found = paired_contrast(A, B, seed=0, choice=choice, margin=0.05)
    half = stats.t.isf(0.025, len(d) - 1) * error
    says = found.decided
    assert says.p_value == pytest.approx(2 * stats.t.sf(abs(d.mean()) / error, len(d) - 1))
    assert [says.interval.low, says.interval.high] == pytest.approx(
        [d.mean() - half, d.mean() + half]
    )
    assert says.equivalence_p == pytest.approx(stats.t.sf((d.mean() + 0.05) / error, len(d) - 1))
    assert not any("flip" in name for name in found.others)
    # Power of the noncentral t with that error.
    ncp, critical = says.detectable / error, stats.t.isf(0.025, len(d) - 1)
    power = stats.nct.sf(critical, len(d) - 1, ncp) + stats.nct.cdf(-critical, len(d) - 1, ncp)
    assert power == pytest.approx(0.8, abs=1e-6)


def test_stages_share_one_choice():
    design = Stages(3, stage_weights(0.5))
    without = paired_contrast(A, B, seed=0, design=design).decided.interval
    wide = paired_contrast(A, B, seed=0, design=design, choice=0.02).decided.interval
    error = np.std(np.array(B) - np.array(A), ddof=1) / math.sqrt(6)
    ratio = (wide.high - wide.low) / (without.high - without.low)
    assert ratio == pytest.approx(math.hypot(error, 0.02) / error, rel=1e-6)


def test_the_error_of_redrawn_seeds_is_that_of_all_redrawings():
    ours = np.array([[1.0, 2.0, 1.4], [1.3, 1.2, 1.6]])
    theirs = np.array([[1.0, 1.1, 1.2], [1.05, 1.0, 1.3]])
    found = []
    for seeds in np.ndindex(3, 3, 3):
        pick = [int(arm[:, seeds].mean(1).argmin()) for arm in (ours, theirs)]
        found.append(ours.mean(1)[pick[0]] - theirs.mean(1)[pick[1]])
    error = redrawn_error([(theirs, theirs), (ours, ours)], seed=1, draws=20_000)
    assert error == pytest.approx(np.std(found), rel=0.02)


def test_one_tuning_seed_has_the_spread_of_other_trials():
    x, y, sd = (0.0, 1.0, 2.0), np.array([1.02, 1.0, 1.05]), 0.01
    arm = TunedArm(x, y[:, None], y[:, None])
    rng = np.random.default_rng(1)
    curve, lost = np.polyfit(x, y, 2), []
    for _ in range(4_000):
        drawn = np.polyfit(x, y + sd * rng.standard_normal(3), 2)
        vertex = np.clip(-drawn[1] / (2 * drawn[0]), 0, 2)
        lost.append(np.polyval(curve, vertex) if drawn[0] > 0 else min(y[0], y[2]))
    assert vertex_error([[arm]], [1.0], seed=1, trial_sd=sd) == pytest.approx(np.std(lost), rel=0.1)
    twice = TunedArm(x, np.stack([y, y], 1), np.stack([y, y], 1))
    assert vertex_error([[twice]], [1.0], seed=1, trial_sd=sd) < np.std(lost)


SURFACE = np.array([2.4681, 2.4079, 2.3619, 2.3292, 2.3406, 2.42])
"""Tuning curve of a kept study, 300 iterations, on rates a factor 2 apart."""


def simulated(
    rng: np.random.Generator, moved: float, seeds: int, n: int, sd: float = 0.012
) -> tuple[float, float]:
    """p of two equal arms, the optimum of one `moved` grid steps: with the choice, and without."""
    grid = np.arange(len(SURFACE), dtype=float)
    fit = np.polyfit(grid[1:], SURFACE[1:], 4)

    def loss(arm: int, x: np.ndarray | float) -> np.ndarray:
        return np.polyval(fit, np.clip(np.asarray(x) - moved * arm, 1.0, 5.0))

    offset = rng.uniform(-0.5, 0.5)
    fits, naive, vertex = [], [], []
    for arm in (0, 1):
        tried = loss(arm, grid + offset)[:, None] + sd * rng.standard_normal((len(grid), seeds))
        best = best_of(tried)
        w = min(max(best, 1), len(grid) - 2)
        rows = [w - 1, w, w + 1]
        fits.append(TunedArm(grid[rows], tried[rows], tried[rows]))
        at = parabola(grid[rows], tried[rows].mean(1)).vertex
        noise = sd * rng.standard_normal(n)
        naive.append(loss(arm, best + offset) + noise)
        vertex.append(loss(arm, at + offset) + noise)
    choice = vertex_error([[fits[0]], [fits[1]]], seed=int(rng.integers(2**31)), draws=1000)
    d = vertex[1] - vertex[0]
    error = math.hypot(d.std(ddof=1) / math.sqrt(n), choice)
    with_choice = 2 * stats.t.sf(abs(d.mean()) / error, n - 1)
    return float(with_choice), float(stats.ttest_rel(naive[1], naive[0]).pvalue)


def test_equal_arms_are_told_apart_no_more_often_than_stated():
    """300 studies: the optimum moved by half a step, three tuning seeds, 20 verdict seeds."""
    rng = np.random.default_rng(3)
    p = np.array([simulated(rng, 0.5, 3, 20) for _ in range(300)])
    included, naive = (p < 0.05).mean(0)
    assert included < 0.07 + 3 * math.sqrt(0.07 * 0.93 / 300)
    assert naive > 0.12  # what takes the choice as given


def test_the_vertex_of_other_keys_is_redrawn_where_they_are_as_good():
    rng, x = np.random.default_rng(5), [0.0, 1.0, 2.0]
    shape = np.array([0.02, 0.0, 0.03])[:, None]
    of = lambda level: TunedArm(x, *[level + shape + rng.normal(0, 0.005, (3, 4))] * 2)  # noqa: E731
    one, other, reference = of(2.0), of(2.0), [of(2.0)]
    alone = vertex_error([reference, [one]], seed=1)
    # What is far worse is never chosen; the very same at another value reads alike.
    far = TunedArm(x, *[np.asarray(other.chooses) + 1.0] * 2)
    assert vertex_error([reference, [one, far]], seed=1, draws=50_000) == pytest.approx(
        vertex_error([reference, [one]], seed=1, draws=50_000), rel=0.02
    )
    # One that is chosen as often and was judged 0.1 worse: half of the draws are 0.1 away.
    judged = np.asarray(one.judged) + 0.1
    twin = TunedArm(x, one.chooses, judged)
    spread = vertex_error([reference, [one, twin]], seed=1, draws=50_000)
    assert spread == pytest.approx(math.hypot(alone, 0.05), rel=0.03)
