"""One pass over the text: known answers, every token predicted once, nothing left behind."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from paribus.engine.evaluation import all_measures, predictions
from paribus.engine.evaluation.predictions import TEMPERATURES, predict

from .conftest import of_token, rows_of

COLUMNS = (
    *("loss_nats", "correct", "confidence", "brier", "token", "token_class", "characters"),
    *("losses_at", "confidences_at"),
)


def random_case(vocab_size: int, n: int, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    table = rng.normal(scale=scale, size=(vocab_size, vocab_size)).astype(np.float32)
    return table, rng.integers(vocab_size, size=n)


def test_columns_agree_with_a_softmax_written_out_in_numpy(predicted):
    table, tokens = random_case(11, 500)
    seen, logits, came = predicted(table, tokens, 16), table[tokens[:-1]], np.eye(11)[tokens[1:]]

    def softmax(temperature: float) -> np.ndarray:
        weights = np.exp(logits.astype(np.float64) / temperature)
        return weights / weights.sum(axis=1, keepdims=True)

    p = softmax(1.0)
    np.testing.assert_allclose(seen.loss_nats, -np.log((p * came).sum(1)), rtol=1e-5)
    np.testing.assert_allclose(seen.confidence, p.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(seen.brier, ((p - came) ** 2).sum(axis=1), atol=1e-6)
    assert (seen.correct == (p.argmax(axis=1) == tokens[1:])).all()
    for k, temperature in enumerate(TEMPERATURES):
        p = softmax(temperature)
        np.testing.assert_allclose(seen.losses_at[k], -np.log((p * came).sum(1)), 1e-5, 1e-6)
        np.testing.assert_allclose(seen.confidences_at[k], p.max(axis=1), rtol=1e-6)


def test_positions_windows_classes_and_characters_by_hand(predicted):
    arrays = {"token_class": np.array([0, 3, 4]), "characters": np.array([1, 2, 0])}
    seen = predicted(np.zeros((3, 3)), [0, 1, 2, 0, 1, 1, 0, 2], 3, **arrays)
    assert seen.position.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert seen.token_class.tolist() == [3, 4, 0, 3, 3, 0, 4]
    assert seen.characters.tolist() == [2, 0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize("seq_len", [1, 8, 99, 200])
def test_windows_do_not_overlap_and_cover_everything(bigram, seq_len):
    model = bigram(np.zeros((100, 100)))
    list(predict(model, np.arange(100, dtype=np.uint16), seq_len, of_token(100)))
    assert max(tokens.shape[1] for tokens in model.shown) == min(seq_len, 99)
    assert torch.equal(torch.cat([tokens.flatten() for tokens in model.shown]), torch.arange(99))


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


def test_evaluation_leaves_everything_as_it_was():
    model = Restless()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    generators = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()

    tokens = np.arange(40) % 5
    list(predict(model, tokens, 4, of_token(5)))

    assert [module.training for module in model.modules()] == modes == [True, True, False]
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert model.logits.grad is None
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert np.random.get_state()[1].tobytes() == generators[1]
    assert random.getstate() == generators[2]


def test_a_certain_model_is_exact(predicted):
    """Probabilities that round to 0 and 1 give no negative score and no 0 * inf."""
    seen = predicted(np.roll(np.eye(5), 1, axis=1) * 5000, [0, 1, 2, 3, 4, 3], 3)
    assert seen.loss_nats.tolist() == [0, 0, 0, 0, 5000]
    assert seen.brier.tolist() == [0, 0, 0, 0, 2]
    assert seen.losses_at.sum(axis=1).tolist() == pytest.approx([5000 / t for t in TEMPERATURES])


def test_excluded_and_unknown_tokens(predicted):
    """A token of probability 0 costs nothing until it comes; NaN is never a hit."""
    table = np.zeros((3, 3))
    table[:, 2] = -math.inf
    seen = predicted(table, [0, 1, 0, 2], 4)
    assert seen.loss_nats.tolist() == pytest.approx([math.log(2), math.log(2), math.inf])
    seen = predicted(np.full((3, 3), math.nan), [0, 0, 1, 2], 2)
    assert not seen.correct.any() and np.isnan(seen.loss_nats).all()


def test_some_tokens_of_a_long_text_are_swept_whatever_the_batches(predicted, monkeypatch):
    table, tokens = random_case(11, 16 * 90 + 5)
    whole = predicted(table, tokens, 16)
    assert whole.swept.all()
    monkeypatch.setattr(predictions, "SWEEP_TOKENS", 16 * 31)
    some = predicted(table, tokens, 16)
    assert (some.swept == (np.arange(len(some)) % 3 == 0)).all()
    for column in ("loss_nats", "confidence", "brier"):
        np.testing.assert_allclose(getattr(some, column), getattr(whole, column), atol=2e-6)
    assert (some.correct == whole.correct).all()
    for column in ("losses_at", "confidences_at"):
        assert (getattr(some, column) == getattr(whole, column)[:, some.swept]).all()
    monkeypatch.setattr(predictions, "CPU_BATCH_TOKENS", 16 * 8)
    again = predicted(table, tokens, 16)
    for column in (*COLUMNS, "swept"):
        assert getattr(again, column).tobytes() == getattr(some, column).tobytes()
    (measure,) = (m for m in all_measures() if m.name == "temperature_loss")
    at_one = rows_of(measure, some)[TEMPERATURES.index(1.0)]
    assert at_one.count == some.swept.sum()
    assert at_one.value == pytest.approx(some.loss_nats[some.swept].mean(dtype="float64"))


def test_the_first_of_equally_probable_tokens_is_the_guess(predicted):
    table = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    seen = predicted(table, [0, 0, 1, 1, 2, 2, 0], 8)
    assert seen.correct.tolist() == [True, False, True, False, False, True]


def test_chunks_are_the_text(bigram, monkeypatch):
    table, tokens = random_case(9, 16 * 41 + 6)
    knows = of_token(9, token_class=np.arange(9) % 4, characters=np.arange(9))
    (whole,) = predict(bigram(table), tokens, 16, knows)
    monkeypatch.setattr(predictions, "CPU_BATCH_TOKENS", 32)
    monkeypatch.setattr(predictions, "CHUNK_TOKENS", 100)
    chunks = list(predict(bigram(table), tokens, 16, knows))
    assert [len(chunk) for chunk in chunks] == [128] * 5 + [21]
    for column in (*COLUMNS, "position"):
        parts = np.concatenate([getattr(chunk, column) for chunk in chunks], axis=-1)
        assert parts.tobytes() == getattr(whole, column).tobytes()


class Weighed(nn.Module):
    """A bigram whose logits are a matrix product; its weights are those of a table."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.rows = nn.Linear(len(table), len(table), bias=False)
        self.rows.weight = nn.Parameter(torch.tensor(table.T, dtype=torch.float32))

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        return self.rows(torch.nn.functional.one_hot(tokens_BT, self.rows.in_features).float())


def test_bfloat16_products_are_rounded_and_sums_are_not(bigram):
    table, tokens = random_case(9, 3000)
    rounded = torch.tensor(table).bfloat16().float().numpy()
    (exact,) = predict(bigram(rounded), tokens, 8, of_token(9))
    (lower,) = predict(Weighed(table), tokens, 8, of_token(9), "bfloat16")
    for column in COLUMNS:
        assert getattr(lower, column).tobytes() == getattr(exact, column).tobytes()
