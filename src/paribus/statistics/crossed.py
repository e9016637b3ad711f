"""Tests of scores of seeds crossed with items, for claims about new items.

Seeds and items are both samples, and every seed is scored on every item. The registered target
of a claim says which of them vary:
- *this item set*: items are fixed, a seed's macro score is one number, and the unit is the seed
  pair: `seed_means`, then a test of paired differences;
- *new items*: items are resampled too, crossed with seeds and not nested within them (nested
  resampling counts the item noise once per seed): `crossed_components`, or `crossed_bootstrap`.

With variances a of seeds, b of items and e of their interaction, the mean of S seeds and I items
has the variance a/S + b/I + e/(SI). `crossed_components` estimates that. The bootstrap counts
the interaction three times: if all variance is interaction, it never rejects falsely and has
little power.

Neighbouring items of one text are not independent. They are first joined into a few contiguous
blocks (`contiguous_blocks`), which then are the items. Measured error rates of all these methods
are in docs/reference/error-rates.md.
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
    """Return the macro score per seed, (S,): the mean over tasks of each task's mean score."""
    return np.mean([task.mean(axis=1) for task in tasks], axis=0)


def contiguous_blocks(n_items: int) -> int:
    """Return the number of contiguous blocks into which `n_items` items of one text are joined.

    It is below DESCRIPTIVE_BELOW if the text is too short to estimate how much blocks differ.
    """
    return min(MOST_CONTIGUOUS, n_items // LEAST_IN_BLOCK)


def joined(values: ArrayLike, n_blocks: int) -> Floats:
    """Return sums of `values` (..., I) over contiguous blocks, (..., n_blocks).

    Item i is in block i * n_blocks // I, so block sizes differ by at most one item.
    """
    values = np.asarray(values, dtype=np.float64)
    n_items = values.shape[-1]
    starts = -(-np.arange(n_blocks) * n_items // n_blocks)
    return np.add.reduceat(values, starts, axis=-1)


def crossed_components(
    deltas: Sequence[ArrayLike], *, resolution: float | None = None, choice: float = 0.0
) -> TTest:
    """Return the t test of the macro mean over tasks, with its error from variance components.

    The squared error is that of the seeds' macro means, which contains a/S + e/(SI), plus b/I of
    every task (Searle, Casella and McCulloch 1992, Variance Components, section 4.3; a component
    is never below 0). So it is never below the paired t's. The reference is Student's t on S - 1
    degrees of freedom, or on sum(I_k - 1) if items are fewer than seeds.

    Args and errors: as in `crossed_bootstrap`.
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
    """Return the t test of the macro mean over tasks, with its error from a crossed bootstrap.

    This is Owen's pigeonhole bootstrap (2007, Annals of Applied Statistics). Seeds are drawn once
    per resample for all tasks; items are drawn independently for each task. The bootstrap gives the
    standard error. The reference is Student's t on S - 1 degrees of freedom, or on sum(I_k - 1)
    if items are fewer than seeds, because a bare percentile interval is too short at few seeds
    or items. The standard error is multiplied by sqrt(S / (S - 1)), since a bootstrap divides by
    S. With row, column and interaction variances a, b, e the resampled variance is a/S + b/I +
    3e/(SI) on average (Owen's theorem). So the interaction is counted three times: the test is
    conservative, and never rejects more easily than the paired t.

    Args:
        deltas: K arrays of treatment minus baseline, of shape (S, I_k), S >= 2, with the same
            seeds in every task and I_k >= 2.
        resolution: smallest SD of a seed's difference in the macro score. It is used only if
            every item differs by the same constant at every seed (see `t_test`); any other
            spread is real, however small.
        choice: as in `TTest`.
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
    """Return the t test of a macro mean with standard error `error`."""
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
    """Return whether all differences are equal, up to the rounding of the scores."""
    return float(np.ptp(task)) <= max(rounding(task), TIE * float(np.abs(task).max()))


def _item_error(tasks: list[Floats]) -> float:
    """Return the standard error from sampling items alone, from the variance components b / I."""
    total = 0.0
    for task in tasks:
        n_items = task.shape[1]
        if n_items > 1:
            within = interaction(task) / task.shape[0]
            total += max(0.0, float(task.mean(0).var(ddof=1)) - within) / n_items
    return math.sqrt(total) / len(tasks)


def interaction(task: Floats) -> float:
    """Return the variance of scores [seeds, items] that remains after the main effects."""
    rest = task - task.mean(1, keepdims=True) - task.mean(0) + task.mean()
    return float((rest**2).sum()) / ((task.shape[0] - 1) * (task.shape[1] - 1))


def _shifts(tasks: list[Floats], seed_counts: Floats, rng: np.random.Generator) -> Floats:
    """Return the macro mean of every resample of seeds and items, [B]; `tasks` have mean zero.

    Drawing item counts is expensive, so tasks of one size share a pool of B count vectors. Each
    task uses the pool in its own random order: B draws per task, independent between tasks.
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
    """Return K tasks as finite arrays of shape (S, I_k)."""
    return [checked_scores(task, f"task {k}", ndim=2) for k, task in enumerate(tasks)]
