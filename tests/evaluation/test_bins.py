"""Bins of confidence: against loops in plain Python, and ties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.engine.evaluation.text_parts import BINS, equal_width, gap_sum, tally


def naive_error(confidence: list[float], hits: list[bool], members: list[list[int]]) -> float:
    """sum_b n_b / n |accuracy_b - confidence_b|, as Guo et al. 2017 write it."""
    error = 0.0
    for bin_ in members:
        if bin_:
            accuracy = sum(hits[i] for i in bin_) / len(bin_)
            mean = sum(confidence[i] for i in bin_) / len(bin_)
            error += len(bin_) / len(hits) * abs(accuracy - mean)
    return error


@pytest.mark.parametrize("n", [1, 14, 15, 16, 1000, 1003])
def test_against_a_loop(n):
    rng = np.random.default_rng(n)
    confidence = rng.permutation(n) / n + 1e-4
    hits = rng.uniform(size=n) < confidence**2
    wide = [[i for i, c in enumerate(confidence) if b / 15 < c <= (b + 1) / 15] for b in range(15)]
    expected = naive_error(confidence.tolist(), hits.tolist(), wide)
    found = by_width(confidence, hits)
    assert gap_sum(found) / n == pytest.approx(expected, abs=1e-12)
    assert found[0].tolist() == [len(bin_) for bin_ in wide]


def by_width(confidence: np.ndarray, hits: np.ndarray) -> np.ndarray:
    return tally(equal_width(confidence), confidence, hits)


def test_the_edges_of_equal_widths():
    confidence = np.array([1e-9, 1 / 15, 0.0667, 14 / 15, 0.9334, 1.0, math.nan])
    assert equal_width(confidence).tolist() == [0, 0, 1, 13, 14, 14, 0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(0, 1, width=32, exclude_min=True), st.booleans()),
        min_size=1,
        max_size=200,
    ),
    st.randoms(use_true_random=False),
)
def test_an_error_is_a_share_and_the_order_of_the_text_decides_nothing(pairs, shuffle):
    again = list(pairs)
    shuffle.shuffle(again)
    errors = []
    for order in (pairs, again):
        confidence, hits = (np.array(column) for column in zip(*order, strict=True))
        found = by_width(confidence, hits)
        assert found.shape == (3, BINS) and found[0].sum() == len(order)
        errors.append(gap_sum(found) / len(order))
    assert 0 <= errors[0] <= 1
    assert errors[0] == pytest.approx(errors[1], abs=1e-12)
