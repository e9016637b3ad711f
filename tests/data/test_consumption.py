"""Consumption against naive counting of the batches themselves."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.engine.data import TOKEN_CLASSES, batch, consumption, token_classes


def test_one_window_that_fits_exactly():
    """The only start is 0: every token but the first is seen once in each of six windows."""
    tokens = np.array([0, 1, 1, 2, 3], np.uint16)  # " ", "a", "a", "7", "." by their classes
    classes = token_classes([" ", "a", "7", "."], None)
    used = consumption(tokens, classes, seed=1, iterations=3, batch_size=2, seq_len=4)
    assert used.times_seen.tolist() == [1, 0, 0, 0, 0, 0, 4]
    assert dict(zip(TOKEN_CLASSES, used.targets.tolist(), strict=True)) == {
        "alphabetic": 12,
        "numeric": 6,
        "punctuation": 6,
        "whitespace": 0,
        "end-of-document": 0,
    }


@pytest.mark.parametrize("seed", [0, 1, 7, 10**9])
@pytest.mark.parametrize(("batch_size", "seq_len"), [(1, 1), (4, 16), (3, 98), (2, 99)])
def test_consumption_matches_counting_the_batches(seed, batch_size, seq_len):
    positions = np.arange(100, dtype=np.uint16)
    classes = np.random.default_rng(seed).integers(5, size=100)
    seen: Counter[int] = Counter()
    for t in range(20):
        seen.update(batch(positions, seed, t, batch_size, seq_len)[:, 1:].ravel().tolist())
    times = Counter(seen[position] for position in range(100))
    targets = Counter(int(classes[token]) for token in seen.elements())

    used = consumption(positions, classes, seed, 20, batch_size, seq_len)
    assert used.times_seen.tolist() == [times[k] for k in range(max(times) + 1)]
    assert used.targets.tolist() == [targets[c] for c in range(5)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    iterations=st.integers(0, 30),
    batch_size=st.integers(1, 8),
    seq_len=st.integers(1, 40),
    spare=st.integers(1, 50),
)
def test_budget_sums(seed, iterations, batch_size, seq_len, spare):
    tokens = np.random.default_rng(seed).integers(7, size=seq_len + spare).astype(np.uint16)
    classes = np.array([0, 1, 2, 3, 4, 0, 0])
    used = consumption(tokens, classes, seed, iterations, batch_size, seq_len)
    budget = iterations * batch_size * seq_len
    assert used.times_seen.sum() == len(tokens)
    assert (used.times_seen * np.arange(len(used.times_seen))).sum() == budget
    assert used.targets.sum() == budget
