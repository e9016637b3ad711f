"""Containment: how much of the validation split stands word for word in the training split.

Similarity of whole documents misses a short document inside a long one; runs of tokens do not.
"""

from __future__ import annotations

import numpy as np

RUN_TOKENS = 50
"""As in Lee et al. 2022 (Deduplicating Training Data Makes Language Models Better). Of characters,
some nine words: chance and idiom end well before (in Shakespeare, between 30 and 40)."""

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no token's share of a hash is shifted out


def in_training(train: np.ndarray, validation: np.ndarray, length: int = RUN_TOKENS) -> np.ndarray:
    """[n_validation] whether a validation token is part of a run that `train` has too, bool.

    A run is `length` consecutive tokens, as they are: case and whitespace count, and an end of
    document is a token like others. Runs are compared by 64-bit hashes: a false match is as likely
    as n_train x n_validation in 2^64, 1 in 10^8 for a text of 1 MB.
    """
    leaked = np.zeros(len(validation) + 1, np.int64)
    if min(len(train), len(validation)) >= length:
        known = np.sort(_run_hashes(train, length))
        runs = _run_hashes(validation, length)
        place = np.searchsorted(known, runs).clip(max=len(known) - 1)
        opens = (known[place] == runs).astype(np.int64)
        leaked[: len(runs)] += opens
        leaked[length : length + len(runs)] -= opens
    return np.cumsum(leaked[:-1]) > 0


def _run_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """[n - length + 1] a polynomial in _BASE, modulo 2^64, of every run of `length` tokens."""
    hashes = np.zeros(len(ids) - length + 1, np.uint64)
    for i in range(length):
        hashes *= _BASE
        hashes += ids[i : i + len(hashes)]
    return hashes
