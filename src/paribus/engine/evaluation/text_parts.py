"""The parts that a measure is given by: their names, and the sums of each over a chunk.

A family of parts is a function from `seq_len` to the names of its rows, in their order. A part that
no token belongs to has no row, so that nothing is ever divided by zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paribus.engine.data import TOKEN_CLASSES
from paribus.engine.evaluation.predictions import TEMPERATURES, Predictions

BINS = 15  # as Guo et al. 2017


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """Return [N] the bin of each confidence, from 0: (0, 1/15], ..., (14/15, 1].

    The bins of Guo et al. 2017. NaN, which a broken model gives, goes to the first.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def tally(index: np.ndarray, confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return [3, BINS] float64: by bin the tokens, the sum of their confidences, and their hits."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=BINS).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """sum_bins |hits - summed confidence|; over the tokens, the expected calibration error.

    Guo et al. 2017, equation 3: the mean of |accuracy - confidence|, weighted by tokens.
    """
    _, confidence, hits = tally
    return float(np.abs(hits - confidence).sum())


CONTEXT_STEP = 8  # tokens

Parts = Callable[[int], tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """One number of a measure.

    `value` is `total` / `count` where the measure is a ratio of sums; other measures have no total
    and no count. The name of the `measure` and its `unit` are filled in once it is checked.
    """

    part: str
    value: float
    total: float | None = None
    count: int | None = None
    measure: str = ""
    unit: str = ""

    @classmethod
    def ratio(cls, part: str, total: float, count: int) -> Row:
        """total / count of a part that has tokens (count > 0), with both."""
        return cls(part, float(total) / int(count), float(total), int(count))


def whole(seq_len: int) -> tuple[str, ...]:
    """Return the whole split; what a measure says of it is the trial's score."""
    return ("all",)


def token_classes(seq_len: int) -> tuple[str, ...]:
    """Return the class of the predicted token."""
    return TOKEN_CLASSES


def positions(seq_len: int) -> tuple[str, ...]:
    """Return the place in the window: "position 5" is predicted from 5 tokens."""
    return tuple(f"position {p}" for p in range(1, seq_len + 1))


def contexts(seq_len: int) -> tuple[str, ...]:
    """Lengths of context, 8, 16, ... and seq_len, each with those since the one before it."""
    ends = [*range(CONTEXT_STEP, seq_len, CONTEXT_STEP), seq_len]
    return tuple(f"context {end}" for end in ends)


def confidence_bins(seq_len: int) -> tuple[str, ...]:
    """Bins of confidence, of equal width, from the least confident."""
    return tuple(f"bin {b}" for b in range(1, BINS + 1))


def temperatures(seq_len: int) -> tuple[str, ...]:
    """Softmax temperatures."""
    return tuple(f"T={temperature:.3g}" for temperature in TEMPERATURES)


BREAKDOWN: tuple[Parts, ...] = (whole, token_classes, positions)


def breakdown(
    predictions: Predictions, totals: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """Return [parts, 2] `totals` [N] and `counts` [N] (1 each by default) of BREAKDOWN's parts."""
    families = (
        (1, np.zeros(len(predictions), np.int64)),
        (len(TOKEN_CLASSES), predictions.token_class),
        (predictions.seq_len, predictions.position),
    )
    return np.concatenate([grouped(n, index, totals, counts) for n, index in families])


def grouped(
    n: int, index: np.ndarray, totals: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """Return [n, 2] the sums of `totals` and `counts` (1 each by default) by `index` [N]."""
    # bincount adds up in float64, which holds whole numbers of characters exactly.
    total = np.bincount(index, totals, minlength=n)
    return np.stack([total, np.bincount(index, counts, minlength=n)], axis=1)
