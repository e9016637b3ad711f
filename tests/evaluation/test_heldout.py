"""The evaluation as a whole: scores, windows, rows."""

import math
from itertools import pairwise

import numpy as np
import pytest

from paribus.engine.evaluation import Evaluation, blocks as division

TOKENS = [0, 1, 2, 3, 9, 5, 6, 7, 8, 9, 1]
SUCCESSOR = np.eye(11, k=1) * 3


def test_scores_by_hand(evaluated):
    heldout = evaluated(SUCCESSOR, TOKENS, 4)
    scores, blocks = heldout.scores, heldout.blocks
    right = 7  # every step but 3 -> 9, 9 -> 5 and 9 -> 1
    assert (scores["correct"], scores["predicted"]) == (right, 10)
    log_sum = math.log(math.exp(3) + 10)
    expected = (right * (log_sum - 3) + (10 - right) * log_sum) / 10
    assert scores["validation_loss"] == pytest.approx(expected, rel=1e-6)
    assert scores["loss_sum_nats"] == pytest.approx(10 * expected, rel=1e-6)
    assert scores["bits_per_character"] == pytest.approx(expected / math.log(2), rel=1e-6)
    assert scores["calibration_error"] == pytest.approx(
        0.7 - math.exp(3) / (math.exp(3) + 10), abs=1e-6
    )
    assert blocks["predicted"].tolist() == [4, 4, 2]
    assert blocks["correct"].tolist() == [3, 3, 1]
    expected = [4 * log_sum - 9, 4 * log_sum - 9, 2 * log_sum - 3]
    assert blocks["loss_sum_nats"].tolist() == pytest.approx(expected)


# Blocks of held-out text: documents or windows, capped, and the same however the text is read.


END = 5


def text(lengths: list[int]) -> np.ndarray:
    """Documents of so many tokens each, their ends included; the first token is not predicted."""
    rng = np.random.default_rng(0)
    parts = [np.append(rng.integers(5, size=n - 1), END) for n in lengths]
    return np.concatenate([[0], *parts])


TABLE = np.random.default_rng(1).normal(size=(6, 6))
LENGTHS = [3, 40, 1, 17, 90, 5, 22]


@pytest.fixture
def by_document(evaluated):
    def run(tokens: np.ndarray, seq_len: int) -> Evaluation:
        return evaluated(TABLE, tokens, seq_len, end_of_document=END)

    return run


@pytest.mark.parametrize("seq_len", [1, 8, 1000])
def test_a_document_is_an_item_whatever_the_windows(by_document, seq_len):
    tokens = text(LENGTHS)
    found = by_document(tokens, seq_len)
    assert found.division.record == {"kind": "document", "items": 7, "blocks": 7}
    assert found.blocks["predicted"].tolist() == LENGTHS
    edges = np.cumsum([0, *LENGTHS])
    log_p = TABLE - np.log(np.exp(TABLE).sum(axis=1, keepdims=True))
    losses = -log_p[tokens[:-1], tokens[1:]]
    expected = [losses[a:b].sum() for a, b in pairwise(edges)]
    np.testing.assert_allclose(found.blocks["loss_sum_nats"], expected, rtol=1e-6)


def test_few_documents_are_read_by_windows(by_document):
    found = by_document(text([10, 10, 10, 10]), 16)
    assert found.division.record == {"kind": "window", "items": 3, "blocks": 3}
    assert found.blocks["predicted"].tolist() == [16, 16, 8]


def test_neighbouring_documents_join(by_document, monkeypatch):
    lengths = np.random.default_rng(2).integers(1, 30, size=103).tolist()
    single = by_document(text(lengths), 8).blocks
    monkeypatch.setattr(division, "MOST_BLOCKS", 10)
    joined = by_document(text(lengths), 8)
    assert joined.division.record == {"kind": "document", "items": 103, "blocks": 10}
    of = np.arange(103) * 10 // 103
    assert np.ptp(np.bincount(of)) == 1
    for name, sums in joined.blocks.items():
        np.testing.assert_allclose(sums, np.bincount(of, single[name]), rtol=1e-12)
