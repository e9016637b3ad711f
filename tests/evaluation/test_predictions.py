"""One pass over the text: known answers, every token predicted once, nothing left behind."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from paribus.errors import ParibusError
from paribus.evaluation import TEMPERATURES, all_measures, predict, predictions

Maker = Callable[..., predictions.Predictions]
COLUMNS = ("loss_nats", "correct", "confidence", "brier", "token_class", "characters")


def random_case(vocab_size: int, n: int, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    table = rng.normal(scale=scale, size=(vocab_size, vocab_size)).astype(np.float32)
    return table, rng.integers(vocab_size, size=n)


@pytest.mark.parametrize("n", [2, 9, 16, 17, 33, 300])
def test_a_uniform_model_has_the_loss_of_a_uniform_guess(predicted: Maker, n: int) -> None:
    seen = predicted(np.zeros((7, 7)), np.arange(n) % 7, 8)
    assert len(seen) == n - 1
    np.testing.assert_allclose(seen.loss_nats, math.log(7), rtol=1e-6)
    np.testing.assert_allclose(seen.confidence, 1 / 7, rtol=1e-6)
    np.testing.assert_allclose(seen.brier, 6 / 7, rtol=1e-6)


def test_columns_agree_with_a_softmax_written_out_in_numpy(predicted: Maker) -> None:
    table, tokens = random_case(11, 500)
    logits = table.astype(np.float64)[tokens[:-1]]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    came = np.eye(11)[tokens[1:]]

    seen = predicted(table, tokens, 16)
    np.testing.assert_allclose(seen.loss_nats, -np.log((probabilities * came).sum(1)), rtol=1e-5)
    np.testing.assert_allclose(seen.confidence, probabilities.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(seen.brier, ((probabilities - came) ** 2).sum(axis=1), atol=1e-6)
    assert (seen.correct == (probabilities.argmax(axis=1) == tokens[1:])).all()


def test_the_sweep_agrees_with_a_softmax_written_out_in_numpy(predicted: Maker) -> None:
    table, tokens = random_case(11, 500)
    logits = table.astype(np.float64)[tokens[:-1]]
    seen = predicted(table, tokens, 16).sweep
    step = 1e-5
    for k, temperature in enumerate(TEMPERATURES):

        def loss(inverse: float) -> float:
            scaled = logits * inverse
            log_sums = np.log(np.exp(scaled).sum(axis=1))
            return float((log_sums - scaled[np.arange(499), tokens[1:]]).sum())

        inverse = 1 / temperature
        slope = (loss(inverse + step) - loss(inverse - step)) / (2 * step)
        assert seen.loss_sum_nats[k] == pytest.approx(loss(inverse), rel=1e-6)
        assert seen.slope_sum[k] == pytest.approx(slope, rel=1e-4, abs=1e-2)
        confidence = (np.exp(logits * inverse).max(1) / np.exp(logits * inverse).sum(1)).sum()
        assert seen.tallies[k][1].sum() == pytest.approx(confidence, rel=1e-6)
        assert seen.tallies[k][0].sum() == 499


def test_positions_windows_classes_and_characters_by_hand(predicted: Maker) -> None:
    arrays = {"token_classes": np.array([0, 3, 4]), "characters": np.array([1, 2, 0])}
    seen = predicted(np.zeros((3, 3)), [0, 1, 2, 0, 1, 1, 0, 2], 3, **arrays)
    assert seen.position.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert seen.window.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert seen.token_class.tolist() == [3, 4, 0, 3, 3, 0, 4]
    assert seen.characters.tolist() == [2, 0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize("seq_len", [1, 8, 99, 200])
def test_windows_do_not_overlap_and_cover_everything(bigram: Callable, seq_len: int) -> None:
    model = bigram(np.zeros((100, 100)))
    knows = {"token_classes": np.zeros(100), "characters": np.ones(100)}
    predict(model, np.arange(100, dtype=np.uint16), seq_len, **knows)
    assert max(tokens.shape[1] for tokens in model.shown) == min(seq_len, 99)
    shown = torch.cat([tokens.flatten() for tokens in model.shown[:-1]])
    assert torch.equal(shown, torch.arange(99))
    assert torch.equal(model.shown[-1], model.shown[0])  # is anything kept between calls?


def test_a_model_that_keeps_something_between_calls_is_refused(bigram: Callable) -> None:
    model, honest = bigram(np.zeros((4, 4))), bigram(np.zeros((4, 4)))
    later = torch.eye(4)[0]
    model.register_forward_hook(lambda model, given, out: out + later * (len(model.shown) > 2))
    knows = {"token_classes": np.zeros(4), "characters": np.ones(4)}
    tokens = np.arange(12, dtype=np.uint16) % 4
    predict(honest, tokens, 8, **knows)
    with pytest.raises(ParibusError, match="read again after the others, have other losses"):
        predict(model, tokens, 8, **knows)


def test_how_much_is_worked_on_at_once_changes_nothing(
    predicted: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, tokens = random_case(9, 700)
    one = predicted(table, tokens, 8)
    monkeypatch.setattr(predictions, "BATCH_LOGITS", 3 * 8 * 9)
    monkeypatch.setattr(predictions, "CPU_LOGITS", 50)
    other = predicted(table, tokens, 8)
    for column in COLUMNS:
        assert getattr(one, column).tobytes() == getattr(other, column).tobytes()
    np.testing.assert_allclose(one.sweep.tallies, other.sweep.tallies, rtol=1e-12)
    np.testing.assert_allclose(one.sweep.loss_sum_nats, other.sweep.loss_sum_nats, rtol=1e-12)


def test_tokens_and_columns_are_kept_narrow(predicted: Maker) -> None:
    seen = predicted(*random_case(9, 50), 8)
    assert sum(getattr(seen, column).itemsize for column in COLUMNS) == 16  # bytes a token


class Restless(nn.Module):
    """Has a module that stays in evaluation mode, a running mean, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(5))
        self.norm = nn.BatchNorm1d(5)
        self.frozen = nn.Dropout(0.5).eval()

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        torch.rand(3)
        shape = (*tokens_BT.shape, 5)
        return self.frozen(self.norm(self.logits.expand(shape).reshape(-1, 5)).view(shape))


def test_evaluation_leaves_everything_as_it_was() -> None:
    model = Restless()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    generators = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()

    tokens = np.arange(40) % 5
    predict(model, tokens, 4, token_classes=np.zeros(5), characters=np.ones(5))

    assert [module.training for module in model.modules()] == modes == [True, True, False]
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert model.logits.grad is None
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert np.random.get_state()[1].tobytes() == generators[1]
    assert random.getstate() == generators[2]


def test_the_mode_is_restored_when_the_model_fails() -> None:
    model = Restless()
    with pytest.raises(RuntimeError, match="out of bounds"):
        predict(model, np.array([0, 9]), 4, token_classes=np.zeros(5), characters=np.ones(5))
    assert model.training and model.norm.training and not model.frozen.training


def test_a_certain_model_is_exact(predicted: Maker) -> None:
    """Probabilities that round to 0 and 1 give no negative score and no 0 * inf."""
    seen = predicted(np.roll(np.eye(5), 1, axis=1) * 5000, [0, 1, 2, 3, 4, 3], 3)
    assert seen.loss_nats.tolist() == [0, 0, 0, 0, 5000]
    assert seen.brier.tolist() == [0, 0, 0, 0, 2]
    assert seen.sweep.loss_sum_nats.tolist() == pytest.approx([5000 / t for t in TEMPERATURES])
    assert np.isfinite(seen.sweep.slope_sum).all()


def test_a_token_that_the_model_excludes_costs_nothing_until_it_comes(predicted: Maker) -> None:
    table = np.zeros((3, 3))
    table[:, 2] = -math.inf
    seen = predicted(table, [0, 1, 0, 2], 4)
    assert seen.loss_nats.tolist() == pytest.approx([math.log(2), math.log(2), math.inf])
    without = predicted(table, [0, 1, 0], 4)
    assert np.isfinite(without.sweep.slope_sum).all()


def test_nan_is_never_a_hit(predicted: Maker) -> None:
    seen = predicted(np.full((3, 3), math.nan), [0, 0, 1, 2], 2)
    assert not seen.correct.any()
    assert np.isnan(seen.loss_nats).all()


def test_one_token_is_refused(predicted: Maker) -> None:
    with pytest.raises(ParibusError, match="1 held-out tokens leave nothing to predict"):
        predicted(np.zeros((3, 3)), [1], 4)


def test_a_long_text_is_swept_in_part(predicted: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third window, and nothing else changes: the loss is that of the whole text."""
    table, tokens = random_case(11, 16 * 90 + 5)
    whole = predicted(table, tokens, 16)
    monkeypatch.setattr(predictions, "SWEEP_TOKENS", 16 * 31)
    some = predicted(table, tokens, 16)
    for column in COLUMNS:
        assert getattr(some, column).tobytes() == getattr(whole, column).tobytes()
    swept = some.window % 3 == 0
    assert len(some.sweep) == swept.sum() < len(whole.sweep) == len(whole)
    one = TEMPERATURES.index(1.0)
    expected = some.loss_nats[swept].sum(dtype="float64")
    assert some.sweep.loss_sum_nats[one] == pytest.approx(expected, rel=1e-12)
    assert some.sweep.tallies[one, 2].sum() == some.correct[swept].sum()
    (rows,) = (m for m in all_measures() if m.name == "temperature_loss")
    assert rows.compute(some)[one].count == swept.sum()


def test_temperatures_are_halves_of_one_another() -> None:
    """What the shared softmaxes of the sweep rest on."""
    assert {0.5, 1.0, 2.0} <= set(TEMPERATURES)
    assert all(t / 2 in TEMPERATURES or t * 2 in TEMPERATURES for t in TEMPERATURES)
