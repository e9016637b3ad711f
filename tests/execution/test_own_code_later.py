"""Own code that is honest while its trial is trained and evaluated, and not when asked later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import paribus
from paribus.errors import ParibusError
from paribus.results import load_results
from paribus.study import Study

Maker = Callable[..., Study]

# It waits for a file: one that paribus writes, or the test.
WAITS = """
import os
import numpy, torch
import torch.nn.functional as F
from paribus.engine.model.mlps.ungated import GELU

class Waits(GELU):
    def forward(self, x):
        if os.path.exists(FILE):
            ACTION
        return super().forward(x)
"""
LOOKS_AHEAD = "x = x + F.pad(x[:, 1:], (0, 0, 0, 1))"
REPLACES = "F.silu = F.relu"
ARMS = {"baseline": {}, "own": {"set": {"model.modules.mlp": "waits.py:Waits"}}}


@pytest.fixture
def waiting(small_study: Maker, tmp_path: Path) -> Callable[..., Study]:
    def make(action: str, file: Path, **data: float) -> Study:
        text = WAITS.replace("FILE", repr(str(file))).replace("ACTION", action)
        (tmp_path / "waits.py").write_text(text)
        return small_study(
            {"tasks.names": [], **{f"data.{name}": value for name, value in data.items()}},
            seeds=[1],
            arms=ARMS,
        )

    return make


@pytest.fixture(autouse=True)
def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "silu", torch.nn.functional.silu)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (LOOKS_AHEAD, r"own/seed-1 on the test part, model.modules.mlp = .*tokens after it"),
        (REPLACES, r"evaluating trial own/seed-1 on the test part replaces .*silu"),
    ],
)
def test_on_the_sealed_test_part(
    waiting: Callable[..., Study], tmp_path: Path, action: str, words: str
) -> None:
    study = waiting(action, tmp_path / "r" / "test_part.json", test_fraction=0.1)
    with pytest.raises(ParibusError, match=words):
        paribus.run(study, tmp_path / "r", workers=1)
    assert load_results(tmp_path / "r", trust=True).study.name == "small"
    assert not list((tmp_path / "r").glob("**/own/seed-1/tested.json"))


def test_honest_code_is_evaluated_on_the_test_part(
    waiting: Callable[..., Study], tmp_path: Path
) -> None:
    study = waiting("pass", tmp_path / "r" / "test_part.json", test_fraction=0.1)
    paribus.run(study, tmp_path / "r", workers=1)
    assert list((tmp_path / "r").glob("**/own/seed-1/tested.json"))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (LOOKS_AHEAD, r"own/seed-1 \(asked more\), model.modules.mlp = .*tokens after it"),
        (REPLACES, r"evaluating trial own/seed-1 \(asked more\) replaces .*silu"),
    ],
)
def test_when_further_questions_are_asked(
    waiting: Callable[..., Study], tmp_path: Path, action: str, words: str
) -> None:
    study = waiting(action, tmp_path / "asked", seq_len=128)
    results = paribus.run(study, tmp_path / "r", workers=1)
    (tmp_path / "asked").touch()
    with pytest.raises(ParibusError, match=words):
        paribus.evaluate(results.path, shots=[0], items=2, trust=True, workers=1)
    assert not list((results.path / "evaluations").glob("**/own/seed-1/about.json"))


def test_when_a_trial_is_trained_again(waiting: Callable[..., Study], tmp_path: Path) -> None:
    study = waiting("numpy.isnan = numpy.isinf", tmp_path / "r/trials/own/seed-1/manifest.json")
    with pytest.raises(ParibusError, match=r"training trial own/seed-1 again replaces .*isnan"):
        paribus.run(study, tmp_path / "r", workers=1)
    assert not (tmp_path / "r" / "repeated.json").exists()
