"""A part of the user's own that cannot work is named before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paribus.engine.check import check_arm
from paribus.engine.data import Dataset
from paribus.study import Study

from ..conftest import Maker
from ..tools import refused

PARTS = '''
import torch
import torch.nn.functional as F
from torch import nn
from paribus.engine.model import Attention

class Part(nn.Identity):
    def __init__(self, model):
        super().__init__()

class Wide(Part):
    def forward(self, x, *more):
        return x.repeat(1, 1, 2)

class Breaks(Part):
    def __init__(self, model):
        super().__init__(model)
        self.inner = nn.Linear(7, 7)
    def forward(self, x, *more):
        return self.inner(x)

class NoTokens(Part):
    pass

class Turns(Part):
    stands = "attention"
    def forward(self, q, k, places):
        return q, k

class TurnsAhead(Turns):
    def forward(self, q, k, places):
        return q, k + k.roll(-1, dims=2)

class Peeks(Attention):
    """Masks what it reads first alone: of tokens that are read later at once, it sees all."""
    cached = True
    def _mixed(self, q, k, v, start):
        return F.scaled_dot_product_attention(q, k, v, is_causal=start == 0)

class Misspelt(Breaks):
    residual_projections = ("down",)

class Frozen(Breaks):
    def __init__(self, model):
        super().__init__(model)
        self.inner.weight.requires_grad_(False)


class Unsure(Part):
    def __init__(self, model):
        super().__init__(model)
        self.places = nn.Parameter(torch.zeros(3))
    def init_parameter(self, name, shape, rng):
        return rng.standard_normal(shape) * float("nan")

class WrongShape(Unsure):
    def init_parameter(self, name, shape, rng):
        return [1.0, 2.0]

class Random(Part):
    def __init__(self, model):
        super().__init__(model)
        self.places = nn.Parameter(torch.randn(3))
'''


@pytest.fixture
def study_of(small_study: Maker, tmp_path: Path) -> Maker:
    (tmp_path / "ideas.py").write_text(PARTS)

    def make(site: str, name: str) -> Study:
        own = {f"model.modules.{site}": f"ideas.py:{name}"}
        return small_study(own, arms={"a": {}}, baseline="a")

    return make


@pytest.mark.parametrize(
    ("site", "name", "message"),
    [
        ("mlp", "Wide", "ideas.py:Wide"),
        ("attention", "Breaks", "one step"),
        ("head", "Part", "dry run"),
        ("embedding", "NoTokens", "`tokens`"),
        ("positions", "TurnsAhead", "= 'ideas.py:TurnsAhead'"),
        ("attention", "Peeks", "'ideas.py:Peeks'"),
        ("mlp", "Misspelt", "lists 'down'"),
        ("final_norm", "WrongShape", r"shape \(3,\) for 'final_norm.places'"),
        ("mlp", "Random", "places'"),
        ("mlp", "Frozen", "'blocks.0.mlp.inner.weight'"),
        ("mlp", "Unsure", "init_parameter .*finite .*'blocks.0.mlp.places'"),
    ],
)
def test_a_part_that_cannot_work_is_named(
    study_of: Maker, small_dataset: Dataset, site: str, name: str, message: str
) -> None:
    with refused("own_code", match=message):
        check_arm(study_of(site, name), "a", small_dataset, torch.device("cpu"), 2)
