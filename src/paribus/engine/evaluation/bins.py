"""Bins of confidence: who falls into which, and the calibration error of what they hold."""

from __future__ import annotations

import numpy as np

BINS = 15  # as Guo et al. 2017
# Confidences are equal that agree so far: a sum in float32 depends on the order of the vocabulary.
CELLS = 10**5 + 1


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """[N] the bin of each confidence, from 0: (0, 1/15], ..., (14/15, 1].

    The bins of Guo et al. 2017. NaN, which a broken model gives, goes to the first.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def by_cell(confidence: np.ndarray) -> np.ndarray:
    """[N] the cell of each confidence, of CELLS that are so narrow that it has equal ones alone."""
    index = np.round(confidence.astype(np.float64) * (CELLS - 1))
    return np.clip(np.nan_to_num(index), 0, CELLS - 1).astype(np.int64)


def equal_mass(cells: np.ndarray) -> np.ndarray:
    """[3, BINS] the tally by bins that all hold (nearly) as many tokens, from the one by cells.

    Adaptive binning (Nguyen & O'Connor 2015). Equal confidences always share a bin, that of the
    middle of their ranks: then the order of the text decides nothing, and a model of a single
    confidence has a single bin. Bins can thus differ in size, or be empty.
    """
    cells = cells[:, cells[0] > 0]
    counts = cells[0]
    # Twice the middle rank, counted from the lower edge of the first token to stay whole.
    doubled = 2 * np.cumsum(counts) - counts
    index = np.minimum(BINS * doubled // (2 * counts.sum()), BINS - 1).astype(np.int64)
    return np.stack([np.bincount(index, row, minlength=BINS) for row in cells])


def tally(
    index: np.ndarray, confidence: np.ndarray, correct: np.ndarray, bins: int = BINS
) -> np.ndarray:
    """[3, bins] float64: by bin the tokens, the sum of their confidences, and their hits."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=bins).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """sum_bins |hits - summed confidence|; over the tokens, the expected calibration error.

    Guo et al. 2017, equation 3: the mean of |accuracy - confidence|, weighted by tokens.
    """
    _, confidence, hits = tally
    return float(np.abs(hits - confidence).sum())
