"""The evaluation as a whole: scores, windows, rows."""

import math

import numpy as np
import pytest

TOKENS = [0, 1, 2, 3, 9, 5, 6, 7, 8, 9, 1]
SUCCESSOR = np.eye(11, k=1) * 3


def test_scores_by_hand(evaluated):
    scores = evaluated(SUCCESSOR, TOKENS, 4).scores
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


def test_blocks_add_up_to_the_whole(evaluated):
    heldout = evaluated(SUCCESSOR, TOKENS, 4)
    assert heldout.blocks.columns["predicted"].tolist() == [4, 4, 2]
    assert heldout.blocks.columns["correct"].tolist() == [3, 3, 1]
    log_sum = math.log(math.exp(3) + 10)
    expected = [4 * log_sum - 9, 4 * log_sum - 9, 2 * log_sum - 3]
    assert heldout.blocks.columns["loss_sum_nats"].tolist() == pytest.approx(expected)


def test_a_text_without_characters_has_no_bits_per_character(evaluated):
    arrays = {"token_classes": np.full(11, 4), "characters": np.zeros(11)}
    scores = evaluated(SUCCESSOR, TOKENS, 4, **arrays).scores
    assert "bits_per_character" not in scores
    assert scores["validation_loss"] > 0


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_model_is_evaluated(evaluated, broken):
    heldout = evaluated(np.full((11, 11), broken), TOKENS, 4)
    assert math.isnan(heldout.scores["validation_loss"])
    assert math.isnan(heldout.scores["loss_sum_nats"])
    assert heldout.scores["correct"] == 0
    assert heldout.blocks.columns["predicted"].sum() == 10
