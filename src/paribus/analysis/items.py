"""Held-out metrics by item: documents of the validation text, or its windows.

What is claimed of new text is claimed of new items, so these are resampled with the seeds. An item
weighs by its tokens: metrics are ratios of sums over the text, and so are their means over items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from paribus.analysis.table import Table


@dataclass(frozen=True)
class Ratio:
    """A metric as a ratio of two columns of blocks.parquet, `total` x `scale` over `count`."""

    total: str
    count: str
    scale: float = 1.0


HITS = Ratio("correct", "predicted")
RATIOS = {
    "validation_loss": Ratio("loss_sum_nats", "predicted"),
    "bits_per_character": Ratio("loss_sum_nats", "characters", 1 / math.log(2)),
    "brier_score": Ratio("brier_sum", "predicted"),
}
"""Metrics other than shares of tokens that have blocks of text as items."""


def block_scores(table: Table, metric: str, arm: str, seeds: tuple[int, ...]) -> np.ndarray:
    """[S, I] the score of every block at every seed, such that their mean is that of the text.

    A ratio of sums over blocks of unequal sizes is linearised for resampling (Cochran 1977,
    Sampling Techniques, section 6.4): block i of total y_i and count x_i has R + (y_i - R x_i) /
    mean(x) with R = sum(y) / sum(x). Blocks of equal sizes have y_i / x_i.
    """
    ratio = RATIOS.get(metric, HITS)
    blocks = [table.results.trial_blocks[arm, seed] for seed in seeds]
    y, x = (
        np.stack([block[name].to_numpy(zero_copy_only=False) for block in blocks]).astype(float)
        for name in (ratio.total, ratio.count)
    )
    R = y.sum(axis=1, keepdims=True) / x.sum(axis=1, keepdims=True)
    return ratio.scale * (R + (y - R * x) / x.mean(axis=1, keepdims=True))


def why_other_blocks(table: Table, arm: str, reference: str, seed: int) -> str:
    """Why two arms share no blocks of text; empty where they do."""
    kinds = {table.results.trials[name, seed]["blocks"]["kind"] for name in (arm, reference)}
    # The same text has the same characters in each of its blocks, whatever its tokens are.
    lengths = [
        np.array(table.results.trial_blocks[name, seed]["characters"]) for name in (arm, reference)
    ]
    if len(kinds) == 1 and np.array_equal(lengths[0], lengths[1]):
        return ""
    return "the arms read the validation text in windows of other lengths"


def resolution(table: Table, metric: str, trial: tuple[str, int]) -> float | None:
    """The step of a share of tokens; None where a metric is no share."""
    if metric in RATIOS:
        return None
    return 1 / float(np.sum(table.results.trial_blocks[trial][HITS.count].to_numpy()))
