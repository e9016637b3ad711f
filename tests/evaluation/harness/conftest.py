"""Small models over the text of `quickstart`, and small suites on disk."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paribus.engine.data.tokenizer import BpeTokenizer, train_tokenizer
from paribus.engine.evaluation.harness.standard import standard
from paribus.engine.evaluation.harness.task_runs import run_tasks, suite_tasks
from paribus.engine.format import FORMAT
from paribus.engine.model import GPT, build_model
from paribus.engine.setting import Data, Setting
from paribus.engine.tasks import write_suite
from paribus.rng import stream
from paribus.study import load_study
from paribus.study.study import override

from ...standins import HUB, write_hub

SEQ_LEN = 128


def evaluate_tasks(
    model, tokenizer, seq_len, suite, *, tasks=None, shots=(0,), n_items=None, unknown="skip"
):
    asked = suite_tasks(suite, tasks, unknown)
    return run_tasks(model, tokenizer, seq_len, asked, shots, n_items)


def evaluate_standard(
    model, tokenizer, seq_len, *, tasks=None, shots=(0,), n_items=None, data_folder
):
    asked = standard(tasks, n_items, data_folder)
    return run_tasks(model, tokenizer, seq_len, asked, shots, n_items)


SMALL = {"model.n_layer": 2, "model.n_head": 2, "model.d_model": 16}


@pytest.fixture(autouse=True)
def quiet_harness(caplog):
    caplog.set_level(logging.ERROR, logger="lm_eval")


@pytest.fixture(scope="session")
def suite(dataset, tmp_path_factory):
    return write_suite(tmp_path_factory.mktemp("suite"), dataset, 0, SEQ_LEN, n_least=24)


@pytest.fixture
def make_model():
    """`make_model(vocab_size, seed=0, **overrides)`: random weights, large enough to matter."""

    def make(vocab_size: int, seed: int = 0, **overrides: Any) -> GPT:
        table = load_study("quickstart").setting("baseline").model_dump()
        for key, value in (SMALL | overrides).items():
            override(table, key, value, FORMAT)
        model = build_model(Setting.model_validate(table), vocab_size)
        rng = stream(seed, "test weights")
        with torch.no_grad():
            for parameter in model.parameters():
                values = rng.normal(0, 0.3, size=tuple(parameter.shape)).astype(np.float32)
                parameter.copy_(torch.from_numpy(values))
        return model

    return make


class Uniform(nn.Module):
    """Knows nothing: equal logits over `vocab_size` tokens."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, -1)


@pytest.fixture
def uniform(dataset):
    return Uniform(dataset.vocab_size)


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    """Copies of the standard suite's repositories, with our own small data."""
    return write_hub(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="session")
def bpe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    (folder / "text.txt").write_text(str(HUB), encoding="utf-8")
    text = Data(corpus="text", path="text.txt")
    train_tokenizer(text, folder, 400, folder / "tokenizer.json")
    return BpeTokenizer.read(folder / "tokenizer.json")


@pytest.fixture
def shortest(bpe):
    """Every token costs log(V), so that the choice of fewest tokens is taken."""
    return Uniform(bpe.vocab_size)


@pytest.fixture
def prompts(monkeypatch):
    """(context, continuation) of everything that a model is asked."""
    from paribus.engine.evaluation.harness.adapter import ParibusLM

    seen: list[tuple[str, str]] = []
    scored = ParibusLM.loglikelihood

    def spy(self: ParibusLM, requests: list, **options: Any) -> list:
        seen.extend(request.arguments for request in requests)
        return scored(self, requests, **options)

    monkeypatch.setattr(ParibusLM, "loglikelihood", spy)
    return seen
