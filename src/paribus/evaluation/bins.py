"""Bins of confidence: who falls into which, and the calibration error of what they hold."""

from __future__ import annotations

import numpy as np

BINS = 15  # as Guo et al. 2017
DECIMALS = 6  # in which confidences differ that are not equal


def equal_width(confidence: np.ndarray) -> np.ndarray:
    """[N] the bin of each confidence, from 0: (0, 1/15], ..., (14/15, 1].

    The bins of Guo et al. 2017. NaN, which a broken model gives, goes to the first.
    """
    index = np.ceil(confidence.astype(np.float64) * BINS) - 1
    return np.clip(np.nan_to_num(index), 0, BINS - 1).astype(np.int64)


def equal_mass(confidence: np.ndarray) -> np.ndarray:
    """[N] the bin of each confidence, from 0, such that all bins hold (nearly) as many tokens.

    Adaptive binning (Nguyen & O'Connor 2015). Equal confidences always share a bin, that of the
    middle of their ranks: then the order of the text decides nothing, and a model of a single
    confidence has a single bin. Bins can thus differ in size, or be empty.
    """
    # Equal but for rounding: a sum in float32 depends on the order of the vocabulary.
    rounded = np.round(confidence.astype(np.float64), DECIMALS)
    _, inverse, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    # Twice the middle rank, counted from the lower edge of the first token to stay whole.
    doubled = 2 * np.cumsum(counts) - counts
    return (BINS * doubled // (2 * len(confidence)))[inverse]


def tally(index: np.ndarray, confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """[3, BINS] float64: by bin the tokens, the sum of their confidences, and their hits."""
    weights = (None, confidence, correct)
    return np.stack([np.bincount(index, w, minlength=BINS).astype(np.float64) for w in weights])


def gap_sum(tally: np.ndarray) -> float:
    """sum_bins |hits - summed confidence|; over the tokens, the expected calibration error.

    Guo et al. 2017, equation 3: the mean of |accuracy - confidence|, weighted by tokens.
    """
    _, confidence, hits = tally
    return float(np.abs(hits - confidence).sum())
