"""The temperature of the lowest loss, against a minimiser that sees all logits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from paribus.engine.evaluation import Predictions
from paribus.engine.evaluation.measures.built_in_measures import best_temperature

Maker = Callable[..., Predictions]


def text(table: np.ndarray, temperature: float, n: int, seed: int) -> np.ndarray:
    """Tokens that follow a bigram at `temperature`."""
    rng = np.random.default_rng(seed)
    probabilities = np.exp(log_softmax(table / temperature, axis=1))
    tokens = [0]
    for _ in range(n):
        tokens.append(int(rng.choice(len(table), p=probabilities[tokens[-1]])))
    return np.array(tokens)


def found(predictions: Predictions) -> float:
    (row,) = best_temperature.measured([predictions], predictions.seq_len)
    return row.value


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("temperature", [0.55, 0.9, 1.0, 1.3, 1.85])
def test_against_scipy(predicted: Maker, scale: float, temperature: float) -> None:
    table = np.random.default_rng(5).normal(scale=scale, size=(30, 30))
    tokens = text(table, temperature, 3000, seed=6)

    def loss(t: float) -> float:
        log_probs = log_softmax(table[tokens[:-1]] / t, axis=1)
        return -log_probs[np.arange(3000), tokens[1:]].mean()

    expected = minimize_scalar(loss, bounds=(0.5, 2), method="bounded", options={"xatol": 1e-9}).x
    assert 0.5 < expected < 2
    assert found(predicted(table, tokens, 16)) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("hits", range(51, 100, 4))
def test_two_tokens_in_closed_form(predicted: Maker, hits: int) -> None:
    """A logit of 1.5 for the same token again: confidence is accuracy at T = 1.5 / logit(hits)."""
    tokens = [0]
    for i in range(100):
        tokens.append(tokens[-1] if i < hits else 1 - tokens[-1])
    expected = 1.5 / math.log(hits / (100 - hits))
    assert found(predicted(np.eye(2) * 1.5, tokens, 8)) == pytest.approx(
        min(max(expected, 0.5), 2), abs=5e-4
    )


def test_where_no_temperature_matters_it_is_one(predicted: Maker) -> None:
    assert found(predicted(np.zeros((3, 3)), [0, 1, 2, 0], 2)) == 1


def test_beyond_the_sweep_it_is_the_nearest_end(predicted: Maker) -> None:
    successor = np.roll(np.eye(5), 1, axis=1)
    right, wrong = np.arange(40) % 5, np.arange(40) * 2 % 5
    assert found(predicted(successor, right, 4)) == 0.5
    assert found(predicted(successor, wrong, 4)) == 2


def test_of_a_broken_model_it_is_nan(predicted: Maker) -> None:
    assert math.isnan(found(predicted(np.full((3, 3), math.nan), [0, 1, 2], 2)))
