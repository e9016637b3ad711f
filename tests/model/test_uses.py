"""How a parameter starts and whether it decays follows what its part declares, not its name."""

import math

import pytest

from paribus.engine.model import build_model, initial_parameters, parameter_uses
from paribus.engine.training.groups import is_decayed
from paribus.study import Study

IDEAS = '''
import torch
from torch import nn

class Silent(nn.Module):
    """The built-in MLP with other names, as anybody would write it first: nothing is declared."""

    def __init__(self, model):
        super().__init__()
        self.w1, self.w2 = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return self.w2(torch.nn.functional.gelu(self.w1(x)))

class Declared(Silent):
    residual_projections = ("w2",)

class Nowhere(Silent):
    residual_projections = ()

class Whitening(nn.Module):
    undecayed = ("mixing",)

    def __init__(self, model):
        super().__init__()
        self.mixing = nn.Linear(16, 16)
        self.rest = nn.Linear(16, 16)

    def forward(self, x):
        return self.rest(self.mixing(x))
'''
LAST = "blocks.1.mlp.w2.weight"
RESIDUAL_STD = 0.02 / math.sqrt(2 * 2)


@pytest.fixture
def study_of(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text(IDEAS)

    def make(name: str, site: str = "mlp") -> Study:
        own = {f"model.modules.{site}": f"ideas.py:{name}"}
        return small_study({"seeds": [1]}, arms={"baseline": {}, "own": {"set": own}})

    return make


@pytest.mark.parametrize(("name", "std"), [("Declared", RESIDUAL_STD), ("Nowhere", 0.02)])
def test_stream_writes_declared(study_of, name, std):
    study = study_of(name)
    setting = study.setting("own")
    model = build_model(setting, 50, study.folder)
    initial = initial_parameters(model, setting, seed=1)[LAST]
    assert initial.rule == f"normal(std={std:.6g})"
    assert initial.value.std() == pytest.approx(std, rel=0.06)
    assert parameter_uses(model)[LAST].residual == (std == RESIDUAL_STD)


def test_decay_follows_declarations(study_of):
    study = study_of("Whitening", "attention")
    uses = parameter_uses(build_model(study.setting("own"), 50, study.folder))
    assert not uses["blocks.0.attention.mixing.weight"].decays
    assert uses["blocks.0.attention.rest.weight"].decays
    study = study_of("Declared", "block_norm")
    uses = parameter_uses(build_model(study.setting("own"), 50, study.folder))
    assert not uses["blocks.0.mlp_norm.w1.weight"].decays
    assert not uses["blocks.0.attention.out.bias"].decays
    table = uses["embedding.tokens.weight"]
    assert is_decayed(table, "matrices") and not is_decayed(table, "linear")
