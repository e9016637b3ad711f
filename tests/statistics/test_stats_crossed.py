"""Seeds and items against its closed form, the paired t, and simulation."""

import numpy as np
import pytest
from scipy import signal, stats

from paribus.statistics import (
    contiguous_blocks,
    crossed_components,
    joined,
    macro_contrast,
)
from paribus.statistics.crossed import crossed_bootstrap


def simulated(
    rng: np.random.Generator, shape: tuple[int, int], seed_sd: float, item_sd: float
) -> np.ndarray:
    seeds = rng.normal(0, seed_sd, size=(shape[0], 1))
    return seeds + rng.normal(0, item_sd, size=(1, shape[1])) + rng.normal(size=shape)


def pigeonhole_variance(task: np.ndarray) -> float:
    """Exact variance of the crossed-resampled mean, from population variances (Owen 2007)."""
    rows, columns = task.mean(1, keepdims=True), task.mean(0, keepdims=True)
    rest = task - rows - columns + task.mean()
    return rows.var() / rows.size + columns.var() / columns.size + rest.var() / rest.size


def test_variance_matches_the_closed_form():
    rng = np.random.default_rng(0)
    for shape in ((5, 40), (12, 7)):
        task = simulated(rng, shape, 0.5, 0.8)
        result = crossed_bootstrap([task], seed=1, resamples=100_000)
        exact = pigeonhole_variance(task) * shape[0] / (shape[0] - 1)
        assert result.standard_error**2 == pytest.approx(exact, rel=0.02)


def test_components_are_those_of_an_analysis_of_variance():
    """Of one task: (MS seeds + MS items - MS rest) / (S I), as the two-way layout has them."""
    task = simulated(np.random.default_rng(8), (6, 30), 0.3, 0.5)
    n_seeds, n_items = task.shape
    seeds, items, whole = task.mean(1), task.mean(0), task.mean()
    rest = task - seeds[:, None] - items + whole
    squares = [
        n_items * ((seeds - whole) ** 2).sum() / (n_seeds - 1),
        n_seeds * ((items - whole) ** 2).sum() / (n_items - 1),
        -(rest**2).sum() / ((n_seeds - 1) * (n_items - 1)),
    ]
    found = crossed_components([task])
    assert found.standard_error**2 == pytest.approx(sum(squares) / task.size)
    t = whole / found.standard_error
    assert found.p_value() == pytest.approx(2 * stats.t.sf(abs(t), n_seeds - 1))


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.05), (0.1, 0.1), (1.0, 0.0), (0.0, 1.0)])
def test_components_hold_the_level_at_five_seeds(a, b):
    """Interaction of variance 1, five seeds, 40 items: 800 studies."""
    rng, n = np.random.default_rng(9), 800
    hits = 0
    for _ in range(n):
        task = rng.standard_normal((5, 40))
        task += a**0.5 * rng.standard_normal((5, 1)) + b**0.5 * rng.standard_normal((1, 40))
        hits += crossed_components([task]).p_value() <= 0.05
    assert hits / n < 0.055 + 3 * (0.055 * 0.945 / n) ** 0.5


def test_new_items_are_decided_by_the_errors_of_seeds_and_items():
    rng = np.random.default_rng(4)
    baseline = [simulated(rng, (8, size), 0.3, 0.5) for size in (20, 30)]
    treatment = [task + 0.2 + rng.normal(0, 0.3, size=task.shape) for task in baseline]
    new = macro_contrast(baseline, treatment, seed=5, margin=1)
    deltas = [b - a for a, b in zip(baseline, treatment, strict=True)]
    assert new.basis == crossed_components(deltas)
    assert new.p_value == new.basis.p_value()
    assert new.test == "crossed_components"
    earlier = macro_contrast(baseline, treatment, seed=5, margin=1, crossed="bootstrap")
    assert earlier.basis == crossed_bootstrap(deltas, seed=5)
    assert earlier.test == "crossed_bootstrap"


def test_few_items_are_few_whatever_the_number_of_seeds():
    """With the seeds' degrees of freedom, 39% of 2 items were found to differ, 11% of 5."""
    task = simulated(np.random.default_rng(3), (20, 5), 0.1, 1.0)
    few = crossed_bootstrap([task], seed=0)
    assert few.df == 4
    t = abs(few.mean) / few.standard_error
    assert few.p_value() == pytest.approx(2 * stats.t.sf(t, 4))
    assert few.detectable(power=0.8, alpha=0.05) > 3.3 * few.standard_error  # 2.9 with 19
    both = crossed_bootstrap([task, task[:, :2]], seed=0)
    assert both.df == 5
    assert crossed_bootstrap([np.repeat(task, 9, axis=1)], seed=0).df == 19


def test_blocks_are_contiguous_and_lose_nothing():
    assert [contiguous_blocks(n) for n in (1, 39, 40, 79, 80, 10_000)] == [0, 4, 5, 9, 10, 10]
    np.testing.assert_array_equal(joined(np.arange(7), 3), [0 + 1 + 2, 3 + 4, 5 + 6])
    rng = np.random.default_rng(2)
    for n_items in (5, 23, 400):
        values = rng.normal(size=(3, n_items))
        for n_blocks in (1, 2, 5):
            place = np.arange(n_items) * n_blocks // n_items  # as records join documents
            one_by_one = [values[:, place == k].sum(1) for k in range(n_blocks)]
            np.testing.assert_allclose(joined(values, n_blocks), np.stack(one_by_one, 1))
        np.testing.assert_array_equal(joined(values, n_items), values)


def test_error_over_contiguous_blocks_is_that_of_the_mean_of_a_series():
    """Known answer: of an AR(1) the mean of n has the variance (n + 2 sum (n - k) r^k) / n^2."""
    n, r, series = 800, 0.9, 300
    lags = np.arange(1, n)
    exact = (n + 2 * ((n - lags) * r**lags).sum()) / n**2
    found = {n: 0.0, 10: 0.0}
    innovations = np.random.default_rng(12).normal(size=(series, n + 500))
    rows = signal.lfilter([np.sqrt(1 - r**2)], [1, -r], innovations)[:, 500:]
    for row in rows:
        for n_blocks in found:
            scores = joined(row, n_blocks) * n_blocks / n
            # The same at each of two seeds: all error is of the text.
            error = crossed_components([np.stack([scores, scores])]).item_error
            found[n_blocks] += error**2 / series
    # Ten blocks lose what reaches from one block into the next: 12% of the variance here.
    assert found[10] == pytest.approx(exact, rel=0.2)
    assert found[n] < 0.06 * exact
