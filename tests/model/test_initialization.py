"""Initial weights: shared parameters are bit-equal between arms, whatever else an arm has; how one
starts and whether it decays follows what its part declares, not its name."""

import math

import numpy as np
import pytest

from paribus.engine.model import build_model, initial_parameters, parameter_uses
from paribus.engine.model.initialization import InitialParameter
from paribus.engine.training.groups import is_decayed
from paribus.study import Study, load_study

RESIDUAL_STD = 0.02 / math.sqrt(2 * 2)
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

class Plain(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.w1, self.w2 = nn.Linear(16, 64), nn.Linear(64, 16)
    def forward(self, x):
        return self.w2(torch.nn.functional.gelu(self.w1(x)))

class Declared(Plain):
    residual_projections, undecayed = ("w2",), ("w1",)
'''


@pytest.fixture
def own(small_study, tmp_path):
    """`own("mlp", "Plain")`: a study whose arm `own` has this class of OWN."""
    (tmp_path / "ideas.py").write_text(OWN)

    def make(site: str, name: str) -> Study:
        changed = {f"model.modules.{site}": f"ideas.py:{name}"}
        return small_study(arms={"baseline": {}, "own": {"set": changed}})

    return make


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


def test_a_custom_module_initializes_what_it_names(own):
    study = own("block_norm", "ScaledNorm")
    initial, base = drawn(study, "own", 1), drawn(study, "baseline", 1)
    weight = initial["blocks.0.mlp_norm.weight"]
    assert weight.rule == "ScaledNorm.init_parameter"
    assert 1 <= weight.value.min() < weight.value.max() <= 2
    assert initial["blocks.0.mlp_norm.temperature"].rule == "as constructed"
    assert initial["blocks.0.mlp_norm.temperature"].value == np.float32(0.5)
    name = "blocks.1.attention.qkv.weight"
    assert base[name].value.tobytes() == initial[name].value.tobytes()


@pytest.mark.parametrize(("name", "std"), [("Declared", RESIDUAL_STD), ("Plain", 0.02)])
def test_start_and_decay_follow_declarations(own, name, std):
    study = own("mlp", name)
    initial = drawn(study, "own", 1)["blocks.1.mlp.w2.weight"]
    assert initial.rule == f"normal(std={std:.6g})"
    assert initial.value.std() == pytest.approx(std, rel=0.06)
    uses = parameter_uses(build_model(study.setting("own"), 50, study.folder))
    assert uses["blocks.1.mlp.w2.weight"].residual == (name == "Declared")
    assert uses["blocks.1.mlp.w1.weight"].decays == (name == "Plain")
    assert uses["blocks.1.mlp.w2.weight"].decays
    assert not uses["blocks.0.attention.out.bias"].decays
    table = uses["embedding.tokens.weight"]
    assert is_decayed(table, "matrices") and not is_decayed(table, "linear")


def test_norms_of_blocks_do_not_decay(own):
    study = own("block_norm", "Plain")
    uses = parameter_uses(build_model(study.setting("own"), 50, study.folder))
    assert not uses["blocks.0.mlp_norm.w1.weight"].decays
