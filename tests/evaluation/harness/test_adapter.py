"""The adapter as the harness uses it: against naive passes, and in awkward cases."""

from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance

from paribus.engine.data import CharacterTokenizer
from paribus.engine.evaluation.harness.adapter import ParibusLM
from paribus.engine.model import GPT
from paribus.rng import stream

SEQ_LEN = 16
TEXT = "abcdefgh ?\n"
TOKENIZER = CharacterTokenizer.from_text(TEXT)
WITH_END = CharacterTokenizer.from_text(TEXT, ends=True)


def request(*arguments: Any, kind: Any = "loglikelihood") -> Instance:
    return Instance(kind, {}, arguments, 0, metadata=("some_task", 7, 1))


@pytest.fixture
def model(make_model):
    return make_model(WITH_END.vocab_size, **{"data.seq_len": SEQ_LEN}).eval()


@torch.no_grad()
def log_probs(model: GPT, ids: list[int]) -> np.ndarray:
    """[T, V] of one row."""
    return model(torch.tensor([ids]))[0].double().log_softmax(-1).numpy()


def test_loglikelihood_is_that_of_a_forward_pass(model):
    (given,) = ParibusLM(model, TOKENIZER, SEQ_LEN).loglikelihood([request("abc ", "de")])
    ids = TOKENIZER.encode("abc de").tolist()
    rows = log_probs(model, ids)
    assert given[0] == pytest.approx(rows[3, ids[4]] + rows[4, ids[5]], abs=1e-4)
    assert given[1] == ([rows[3].argmax(), rows[4].argmax()] == ids[4:])


@pytest.mark.parametrize("tokenizer", [TOKENIZER, WITH_END])
def test_an_empty_context_is_a_document_end(model, tokenizer):
    lm = ParibusLM(model, tokenizer, SEQ_LEN)
    start = tokenizer.end_of_document or int(tokenizer.encode("\n")[0])
    ids = tokenizer.encode("ab").tolist()
    rows = log_probs(model, [start, ids[0]])
    assert lm.loglikelihood([request("", "ab")])[0][0] == pytest.approx(
        rows[0, ids[0]] + rows[1, ids[1]], abs=1e-4
    )


def test_a_long_context_loses_its_beginning(model):
    lm = ParibusLM(model, TOKENIZER, SEQ_LEN)
    text = "abcdefgh abcdefgh abcdefgh"
    given = lm.loglikelihood([request(text, "de"), request("abc", "d")])
    assert given[0] == lm.loglikelihood([request(text[-15:], "de")])[0]


def test_a_long_choice_is_read_window_by_window(model):
    lm = ParibusLM(model, TOKENIZER, SEQ_LEN)
    choice = TOKENIZER.decode(stream(0, "long").integers(0, 8, size=2 * SEQ_LEN))
    ids = TOKENIZER.encode("ab" + choice).tolist()[1:]  # the last token of the context, the choice
    expected = sum(
        log_probs(model, ids[start : at + 1])[-1, ids[at + 1]]
        for start in (0, SEQ_LEN)
        for at in range(start, start + SEQ_LEN)
    )
    ((given, greedy),) = lm.loglikelihood([request("ab", choice)])
    assert given == pytest.approx(expected, abs=2e-4)
    assert not greedy


def test_unknown_characters_are_replaced_or_left_out(model):
    lm = ParibusLM(model, TOKENIZER, SEQ_LEN)
    assert lm.loglikelihood([request("aä", "éb")]) == lm.loglikelihood([request("a?", "?b")])
    lm = ParibusLM(model, CharacterTokenizer.from_text("ab"), SEQ_LEN)
    assert lm.loglikelihood([request("aä", "éb")]) == lm.loglikelihood([request("a", "b")])
