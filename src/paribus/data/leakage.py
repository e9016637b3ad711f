"""Containment: how much of the validation split stands word for word in the training split.

Similarity of whole documents misses a short document inside a long one; runs of tokens do not.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from paribus.data.shards import in_order
from paribus.data.tokens import Tokens, chunks

RUN_TOKENS = 50
"""As in Lee et al. 2022 (Deduplicating Training Data Makes Language Models Better). Of characters,
some nine words: chance and idiom end well before (in Shakespeare, between 30 and 40)."""

_BASE = 0x9E3779B97F4A7C15  # odd: no token's share is shifted out
MOST_BITS = 27  # of the table that sorts out runs: 128 MiB


def in_training(train: Tokens, validation: np.ndarray, length: int = RUN_TOKENS) -> np.ndarray:
    """[n_validation] whether a validation token is part of a run that `train` has too, bool.

    A run is `length` consecutive tokens, as they are: case and whitespace count, and an end of
    document is a token like others. Runs are compared by 64-bit hashes: a false match is as likely
    as n_train x n_validation in 2^64, 1 in 10^8 for a text of 1 MB. The training text is streamed:
    memory grows with the validation text alone.
    """
    leaked = np.zeros(len(validation) + 1, np.int64)
    if min(len(train), len(validation)) >= length:
        runs = run_hashes(validation, length)
        opens = known_runs(train, runs, length).astype(np.int64)
        leaked[: len(runs)] += opens
        leaked[length : length + len(runs)] -= opens
    return np.cumsum(leaked[:-1]) > 0


def known_runs(text: Tokens, runs: np.ndarray, length: int) -> np.ndarray:
    """[n] whether each of the hashes `runs` [n] is that of a run of `length` tokens of `text`."""
    wanted = np.sort(runs)
    there = np.zeros(len(wanted), bool)
    # Nearly all runs of the text are none of these: a table of the first bits of those that are
    # wanted tells so at a fraction of the cost of a search.
    bits = min(max(len(wanted).bit_length() + 6, 16), MOST_BITS)
    shift = np.uint64(64 - bits)
    table = np.zeros(2**bits, bool)
    table[wanted >> shift] = True

    def candidates(ids: np.ndarray) -> np.ndarray:
        hashes = run_hashes(ids, length)
        return hashes[table[hashes >> shift]]

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        parts = ((ids,) for ids in chunks(text, overlap=length - 1) if len(ids) >= length)
        for hashes in in_order(pool, candidates, parts, ahead=cores):
            place = np.searchsorted(wanted, hashes).clip(max=len(wanted) - 1)
            there[place[wanted[place] == hashes]] = True
    return there[np.searchsorted(wanted, runs)]


def run_hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """[n - length + 1] a polynomial in _BASE, modulo 2^64, of every run of `length` ids.

    The hash of 2 k ids is made of two of k, so that 50 take seven passes over the text.
    """
    ids = ids.astype(np.uint64)
    hashes, k, power = ids, 1, _BASE  # of k ids, and _BASE^k
    for bit in bin(length)[3:]:
        hashes = hashes[:-k] * np.uint64(power) + hashes[k:]
        k, power = 2 * k, power * power % 2**64
        if bit == "1":
            hashes = hashes[:-1] * np.uint64(_BASE) + ids[k:]
            k, power = k + 1, power * _BASE % 2**64
    return hashes
