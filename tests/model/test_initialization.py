"""Initial weights: shared parameters are bit-equal between arms, whatever else an arm has."""

import math
from pathlib import Path

import numpy as np
import pytest

from paribus.engine.model import build_model, initial_parameters
from paribus.engine.model.initialization import InitialParameter
from paribus.study import Study, load_study, own_digests

from ..conftest import Maker


def drawn(study: Study, arm: str, seed: int) -> dict[str, InitialParameter]:
    setting = study.setting(arm)
    return initial_parameters(build_model(setting, 50, study.folder), setting, seed)


def test_gpt2_s_standard_deviations():
    study = load_study("quickstart")
    initial = drawn(study, "layernorm", 1)
    residual = 0.02 / math.sqrt(2 * 8)
    expected = {
        "embedding.tokens.weight": 0.02,
        "embedding.positions.weight": 0.02,
        "blocks.3.attention.qkv.weight": 0.02,
        "blocks.3.mlp.up.weight": 0.02,
        "blocks.3.attention.out.weight": residual,
        "blocks.3.mlp.down.weight": residual,
    }
    for name, std in expected.items():
        assert initial[name].value.std() == pytest.approx(std, rel=0.03), name
        assert abs(initial[name].value.mean()) < std / 30
        assert initial[name].rule == f"normal(std={std:.6g})"
    assert (initial["embedding.norm.weight"].value == 1).all()
    assert (initial["embedding.norm.bias"].value == 0).all()
    assert (initial["blocks.0.attention.qkv.bias"].value == 0).all()


def test_arms_share_their_parameters_bit_by_bit(small_study):
    study = small_study()
    base, other = drawn(study, "baseline", 5), drawn(study, "layernorm", 5)
    assert other.keys() - base.keys() == {"embedding.norm.weight", "embedding.norm.bias"}
    for name in base:
        assert base[name].value.tobytes() == other[name].value.tobytes()
        assert base[name].record == other[name].record
    again = drawn(study, "baseline", 6)
    assert (again["embedding.tokens.weight"].value != base["embedding.tokens.weight"].value).any()


OWN = '''
import torch
from torch import nn

class ScaledNorm(nn.Module):
    """A norm with a learned temperature, and an init of its own for one parameter."""
    def __init__(self, model):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(model.d_model))
        self.temperature = nn.Parameter(torch.full((), 0.5))
    def init_parameter(self, name, shape, rng):
        return rng.uniform(1.0, 2.0, shape) if name == "weight" else None
    def forward(self, x):
        return x * self.weight * self.temperature

'''


def own(study_maker: Maker, tmp_path: Path, **modules: str) -> Study:
    (tmp_path / "ideas.py").write_text(OWN)
    changed = {f"model.modules.{site}": path for site, path in modules.items()}
    return study_maker(arms={"baseline": {}, "own": {"set": changed}})


def test_an_own_module_initialises_what_it_names(small_study, tmp_path):
    study = own(small_study, tmp_path, block_norm="ideas.py:ScaledNorm")
    initial = drawn(study, "own", 1)
    weight = initial["blocks.0.mlp_norm.weight"]
    assert weight.rule == "ScaledNorm.init_parameter"
    assert 1 <= weight.value.min() < weight.value.max() <= 2
    assert initial["blocks.0.mlp_norm.temperature"].rule == "as constructed"
    assert initial["blocks.0.mlp_norm.temperature"].value == np.float32(0.5)
    base = drawn(study, "baseline", 1)
    name = "blocks.1.attention.qkv.weight"
    assert base[name].value.tobytes() == initial[name].value.tobytes()
    digests = own_digests(study.setting("own"), study.folder)
    assert digests.keys() == {"block_norm"}
