"""Held-out loss: known answers, and every token predicted exactly once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from paribus.evaluation import evaluate_heldout


class Uniform(nn.Module):
    """Knows nothing: equal logits over `vocab_size` tokens."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, -1)


class Successor(nn.Module):
    """Certain that the next token is this one plus 1; remembers what it was shown."""

    def __init__(self, vocab_size: int, certainty: float) -> None:
        super().__init__()
        self.certainty = nn.Parameter(torch.tensor(certainty))
        self.vocab_size = vocab_size
        self.shown: list[torch.Tensor] = []

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.shown.append(tokens)
        return nn.functional.one_hot(tokens + 1, self.vocab_size) * self.certainty


@pytest.mark.parametrize("n", [9, 16, 17, 33, 300])
def test_a_uniform_model_has_the_loss_of_a_uniform_guess(n: int) -> None:
    tokens = np.arange(n, dtype=np.uint16) % 7
    scores = evaluate_heldout(Uniform(7), tokens, seq_len=8).scores
    assert scores["predicted"] == n - 1
    assert scores["validation_loss"] == pytest.approx(math.log(7), rel=1e-6)
    assert scores["validation_perplexity"] == pytest.approx(7, rel=1e-6)
    assert scores["loss_sum_nats"] == pytest.approx((n - 1) * math.log(7), rel=1e-6)


def test_accuracy_and_loss_by_hand() -> None:
    tokens = np.array([0, 1, 2, 3, 9, 5, 6, 7, 8, 9, 1], dtype=np.uint16)
    right = 7  # every step but 3 -> 9, 9 -> 5 and 9 -> 1
    scores = evaluate_heldout(Successor(11, certainty=3.0), tokens, seq_len=4).scores
    assert (scores["correct"], scores["predicted"]) == (right, 10)
    log_sum = math.log(math.exp(3) + 10)
    expected = (right * (log_sum - 3) + (10 - right) * log_sum) / 10
    assert scores["validation_loss"] == pytest.approx(expected, rel=1e-6)


def test_windows_do_not_overlap_and_cover_everything() -> None:
    model = Successor(120, certainty=1.0)
    evaluate_heldout(model, np.arange(100, dtype=np.uint16), seq_len=8)
    shown = torch.cat([tokens.flatten() for tokens in model.shown])
    assert torch.equal(shown.sort().values, torch.arange(99))


def test_evaluation_leaves_the_model_as_it_was() -> None:
    model = Uniform(3).train()
    evaluate_heldout(model, np.array([0, 1, 2], dtype=np.uint16), seq_len=2)
    assert model.training
    assert model.logits.grad is None


def test_a_perplexity_beyond_a_float_is_infinite() -> None:
    tokens = np.array([0, 5, 0, 5], dtype=np.uint16)
    scores = evaluate_heldout(Successor(7, certainty=5000.0), tokens, seq_len=3).scores
    assert scores["validation_perplexity"] == math.inf


def test_calibration_error_by_hand() -> None:
    """One confidence for every token, so one bin: |hits - confidence| (Guo et al. 2017, eq. 3)."""
    tokens = np.array([0, 1, 2, 3, 9, 5, 6, 7, 8, 9, 1], dtype=np.uint16)
    confidence = math.exp(3) / (math.exp(3) + 10)
    heldout = evaluate_heldout(Successor(11, certainty=3.0), tokens, seq_len=4)
    assert heldout.scores["calibration_error"] == pytest.approx(abs(0.7 - confidence), abs=1e-6)
    assert heldout.bin_count.tolist() == [0] * 10 + [10] + [0] * 4  # 0.668 is in (10/15, 11/15]
    assert heldout.bin_correct.sum() == 7


def test_windows_add_up_to_the_whole() -> None:
    tokens = np.array([0, 1, 2, 3, 9, 5, 6, 7, 8, 9, 1], dtype=np.uint16)
    heldout = evaluate_heldout(Successor(11, certainty=3.0), tokens, seq_len=4)
    assert heldout.predicted.tolist() == [4, 4, 2]
    assert heldout.correct.tolist() == [3, 3, 1]
