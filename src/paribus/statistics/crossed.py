"""Tests for crossed random effects of seeds and items, which generalize to new items.

Every seed is scored on every item. There are two target populations:
- *this item set*: items are fixed, and the unit of analysis is the seed pair; use `seed_means` and
  a paired test.
- *new items*: items are a random sample, crossed with seeds (not nested within them); use
  `crossed_components` or `crossed_bootstrap`.

With variance components a of seeds, b of items and e of their interaction, the mean over S seeds
and I items has variance a/S + b/I + e/(SI), which `crossed_components` estimates. The bootstrap
counts the interaction three times, so it is conservative if the interaction is large.

Neighbouring items of one text are not independent, so they are first joined into a few contiguous
blocks (`contiguous_blocks`), which then serve as items. Measured error rates of all methods are in
docs/reference/error-rates.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .conventions import RESAMPLES, TIE, Floats, checked_scores
from .resampling import resample_counts
from .t_test import TTest, least_sd, mean_and_sd, rounding

BLOCK = 1_000  # resamples that are computed at once
# Contiguous blocks of one text: ten of them, the least of the 10 to 30 that Schmeiser (1982, Batch
# size effects in the analysis of simulation output) finds enough, as what has a long memory needs
# long blocks. Shorter texts have fewer, of so many items each.
MOST_CONTIGUOUS = 10
LEAST_IN_BLOCK = 8


def seed_means(tasks: Sequence[Floats]) -> Floats:
    """Return the macro average over tasks for each seed, of shape (S,)."""
    return np.mean([task.mean(axis=1) for task in tasks], axis=0)


def contiguous_blocks(n_items: int) -> int:
    """Return the number of contiguous blocks into which `n_items` items of one text are joined.

    A number below DESCRIPTIVE_BELOW means that the text is too short for a test over blocks.
    """
    return min(MOST_CONTIGUOUS, n_items // LEAST_IN_BLOCK)


def joined(values: ArrayLike, n_blocks: int) -> Floats:
    """Sum `values` of shape (..., I) over contiguous blocks, and return shape (..., n_blocks).

    Item i belongs to block i * n_blocks // I, so block sizes differ by at most one item.
    """
    values = np.asarray(values, dtype=np.float64)
    n_items = values.shape[-1]
    starts = -(-np.arange(n_blocks) * n_items // n_blocks)
    return np.add.reduceat(values, starts, axis=-1)


def crossed_components(
    deltas: Sequence[ArrayLike], *, resolution: float | None = None, choice: float = 0.0
) -> TTest:
    """Test the macro average over tasks, with a standard error from variance components.

    The squared error is that of the paired t-test, which estimates a/S + e/(SI), plus b/I for every
    task, where negative components are set to 0 (Searle, Casella and McCulloch 1992, Variance
    Components, section 4.3). The t distribution has S - 1 degrees of freedom, or sum(I_k - 1) if
    this is smaller. See `crossed_bootstrap` for the arguments.
    """
    tasks = checked_tasks(deltas)
    means = seed_means(tasks)
    of_items = _item_error(tasks)
    error = math.hypot(mean_and_sd(means)[1] / math.sqrt(means.size), of_items)
    return _crossed(tasks, float(means.mean()), error, of_items, resolution, choice)


def crossed_bootstrap(
    deltas: Sequence[ArrayLike],
    *,
    seed: int,
    resamples: int = RESAMPLES,
    resolution: float | None = None,
    choice: float = 0.0,
) -> TTest:
    """Test the macro average over tasks, with a standard error from a crossed bootstrap.

    This is the pigeonhole bootstrap (Owen 2007, Annals of Applied Statistics). Seeds are resampled
    once for all tasks, and items independently for each task. The standard error is multiplied by
    sqrt(S / (S - 1)), because a bootstrap divides by S. The t distribution has S - 1 degrees of
    freedom, or sum(I_k - 1) if this is smaller; a percentile interval would be too short with few
    seeds or items.

    With variance components a, b and e of seeds, items and their interaction, the expected
    bootstrap variance is a/S + b/I + 3e/(SI). The test is therefore conservative, and never less so
    than the paired t-test.

    Args:
        deltas: K arrays of treatment minus baseline, each of shape (S, I_k), S >= 2, I_k >= 2,
            with the same seeds in all tasks.
        seed: seed of the bootstrap.
        resamples: number of bootstrap resamples.
        resolution: minimum SD of a seed's macro average, used only if all differences are equal
            (see `t_test`).
        choice: standard error due to hyperparameter selection.
    """
    tasks = checked_tasks(deltas)
    n_seeds = tasks[0].shape[0]
    mean = float(seed_means(tasks).mean())
    rng = np.random.default_rng(seed)
    seed_counts = resample_counts(rng, n_seeds, resamples)
    shifts = _shifts([task - mean for task in tasks], seed_counts, rng)
    error = math.sqrt(float((shifts**2).mean()) * n_seeds / (n_seeds - 1))
    return _crossed(tasks, mean, error, _item_error(tasks), resolution, choice)


def _crossed(
    tasks: list[Floats],
    mean: float,
    error: float,
    of_items: float,
    resolution: float | None,
    choice: float,
) -> TTest:
    """Build the t-test of a macro average from its mean and standard errors."""
    n, constant = tasks[0].shape[0], all(_is_constant(task) for task in tasks)
    smallest_sd = least_sd(resolution, *tasks)
    if constant:
        error = of_items = 0.0
    error = max(error, smallest_sd / math.sqrt(n))
    of_items = min(of_items, error)
    of_seeds = math.sqrt(error**2 - of_items**2)
    return TTest(
        n=n,
        mean=mean,
        error=of_seeds,
        df_of_seeds=n - 1,
        spread=of_seeds * math.sqrt(n),
        resolution=smallest_sd,
        constant=constant,
        item_error=of_items,
        item_df=sum(task.shape[1] - 1 for task in tasks),
        choice=choice,
    )


def _is_constant(task: Floats) -> bool:
    """Return whether all differences are equal up to rounding error."""
    return float(np.ptp(task)) <= max(rounding(task), TIE * float(np.abs(task).max()))


def _item_error(tasks: list[Floats]) -> float:
    """Return the standard error due to the sampling of items, from variance components."""
    total = 0.0
    for task in tasks:
        n_items = task.shape[1]
        if n_items > 1:
            within = interaction(task) / task.shape[0]
            total += max(0.0, float(task.mean(0).var(ddof=1)) - within) / n_items
    return math.sqrt(total) / len(tasks)


def interaction(task: Floats) -> float:
    """Return the residual variance of scores [seeds, items] after removing main effects."""
    rest = task - task.mean(1, keepdims=True) - task.mean(0) + task.mean()
    return float((rest**2).sum()) / ((task.shape[0] - 1) * (task.shape[1] - 1))


def _shifts(tasks: list[Floats], seed_counts: Floats, rng: np.random.Generator) -> Floats:
    """Return the macro average of B crossed resamples of centred scores, [B].

    Sampling item counts is expensive, so tasks of equal size share a pool of B count vectors, which
    each task uses in a different random order.
    """
    resamples, n_seeds = seed_counts.shape
    total = np.zeros(resamples)
    by_size: dict[int, list[Floats]] = {}
    for task in tasks:
        by_size.setdefault(task.shape[1], []).append(task)
    for size, alike in by_size.items():
        stacked = np.concatenate(alike)  # (K * S, I): one matrix product serves every task
        starts = range(0, resamples, BLOCK)
        blocks = (resample_counts(rng, size, min(BLOCK, resamples - at)) for at in starts)
        pooled = np.concatenate([stacked @ block.T for block in blocks], axis=1)
        for scores in np.split(pooled, len(alike)):
            order = rng.permutation(resamples)
            total += np.einsum("bs,sb->b", seed_counts, scores[:, order]) / size
    return total / (len(tasks) * n_seeds)


def checked_tasks(tasks: Sequence[ArrayLike]) -> list[Floats]:
    """Convert the scores of K tasks to validated arrays of shape (S, I_k)."""
    return [checked_scores(task, f"task {k}", ndim=2) for k, task in enumerate(tasks)]
