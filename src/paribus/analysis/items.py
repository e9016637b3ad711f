"""Held-out metrics by item: documents of the validation text, or its windows.

What is claimed of new text is claimed of new items, so these are resampled with the seeds. An item
weighs by what it is divided by (tokens, bytes): metrics are ratios of sums over the text, which
their declarations name, and so are their means over items.
"""

from __future__ import annotations

import numpy as np

from paribus.analysis.table import Table
from paribus.errors import ParibusError
from paribus.metric import ItemSums
from paribus.results.record_format import records_of


def block_scores(table: Table, items: ItemSums, arm: str, seeds: tuple[int, ...]) -> np.ndarray:
    """[S, I] the score of every block at every seed, such that their mean is that of the text."""
    totals, counts = (
        np.stack([_column(table, arm, seed, name) for seed in seeds])
        for name in (items.total, items.count)
    )
    return items.scale * linearised(totals, counts)


def linearised(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """[S, I] scores of blocks with totals `y` and counts `x`, both [S, I], for resampling.

    A ratio of sums over blocks of unequal sizes is linearised (Cochran 1977, Sampling Techniques,
    section 6.4): block i has R + (y_i - R x_i) / mean(x) with R = sum(y) / sum(x), whose mean is R.
    Blocks of equal sizes have y_i / x_i.
    """
    R = y.sum(axis=1, keepdims=True) / x.sum(axis=1, keepdims=True)
    return R + (y - R * x) / x.mean(axis=1, keepdims=True)


def why_other_blocks(table: Table, arm: str, reference: str, seed: int) -> str:
    """Why two arms share no blocks of text; empty where they do."""
    kinds = {table.results.trials[name, seed]["blocks"]["kind"] for name in (arm, reference)}
    # The same text has the same characters in each of its blocks, whatever its tokens are; but the
    # first token of the text, which no token predicts, is longer in one tokenizer than in another.
    first = 1 if kinds == {"document"} else 0
    column = records_of(table.results.study).aligned_by
    lengths = [_column(table, name, seed, column)[first:] for name in (arm, reference)]
    if len(kinds) == 1 and np.array_equal(lengths[0], lengths[1]):
        return ""
    return "the arms read the validation text in windows of other lengths"


def resolution(table: Table, items: ItemSums, trial: tuple[str, int]) -> float | None:
    """The least change of a metric whose totals are whole numbers; None of others."""
    if not items.step:
        return None
    return items.scale * items.step / float(np.sum(_column(table, *trial, items.count)))


def _column(table: Table, arm: str, seed: int, name: str) -> np.ndarray:
    """[I] float64. Raises ParibusError where the trial's blocks have no such column."""
    blocks = table.results.trial_blocks[arm, seed]
    if name not in blocks.column_names:
        raise ParibusError(f"trial {arm}/seed-{seed}: blocks.parquet has no column '{name}'")
    return blocks[name].to_numpy(zero_copy_only=False).astype(float)
