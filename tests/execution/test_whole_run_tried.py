"""Own parts that would fail late are tried before a run begins."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paribus.engine.check import check_arm

from ..tools import refused

OWN = """
from torch import nn
from paribus.extend import average

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

class Reads(nn.Module):
    def __init__(self, model):
        super().__init__()
    def forward(self, x, shared):
        return x + shared["nobody"]
"""


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
        ({"training.average.kind": "own.py:one"}, ["own.py:one"]),
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
