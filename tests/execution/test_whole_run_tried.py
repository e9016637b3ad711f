"""What is a function of the step is tried for the whole run before it begins."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paribus.engine.check import check_arm

from ..tools import refused

OWN = """
from torch import nn
from paribus.extend import average, schedule

@schedule("late")
def late(at, options):
    return float("nan") if at.step == 17 else 1.0

def kept(at):
    return at.kept[0]

@average("one", give=lambda at: at.kept[0][:, :1])
def one(at):
    pass

class Gives(nn.Module):
    def __init__(self, model):
        super().__init__()
    def forward(self, x, shared):
        shared.output("mean", x.mean(0))
        return x

class Places(nn.Module):
    stands = "embedding"
    def __init__(self, model):
        super().__init__()
    def forward(self, x, shared):
        return x

@average("negative", give=kept, copies=lambda options: -1)
def negative(at):
    pass

class Reads(nn.Module):
    def __init__(self, model):
        super().__init__()
    def forward(self, x, shared):
        return x + shared["nobody"]
"""
KIND = "training.average.kind"


@pytest.fixture
def tried(small_study, small_dataset, tmp_path):
    (tmp_path / "own.py").write_text(OWN)

    def make(overrides: dict[str, Any]) -> list[str]:
        study = small_study({"training.iterations": 20, **overrides}, arms={"baseline": {}})
        return check_arm(study, "baseline", small_dataset, torch.device("cpu"), 1)

    return make


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"training.schedule.kind": "own.py:late"}, ["nan at step 17"]),
        ({KIND: "own.py:one"}, ["'one'", "must return a tensor"]),
        ({KIND: "own.py:negative"}, ["'negative' declares -1 copies"]),
        ({"model.modules.mlp": "own.py:Reads"}, ["own.py:Reads", "nobody"]),
        ({"model.modules.mlp": "own.py:Gives"}, ["shared.output('mean', ...)", "[B, T, ...]"]),
        ({"model.modules.positions": "own.py:Places"}, ["own.py:Places", "`shared`"]),
    ],
)
def test_what_would_fail_late_fails_now_and_says_where(tried, overrides, words):
    with refused("own_code") as caught:
        tried(overrides)
    for word in ("arm 'baseline'", *words):
        assert word in str(caught.value)
