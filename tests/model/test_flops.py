"""Operations of a training step, against PyTorch's own counter and by hand."""

import pytest

from paribus.engine.cost import flops_per_token, model_size
from paribus.engine.model import count_parameters, counted_flops_per_token
from paribus.engine.model.parts import parts

from .variants import VARIANTS

V = 97


# Other norms multiply no matrices; one of them stands for all.
MULTIPLYING = [
    v for v in VARIANTS if not v.startswith(("norm ", "qk_norm ", "embedding ", "tokens "))
]


@pytest.mark.parametrize("variant", [*MULTIPLYING, "embedding layernorm", "qk_norm rmsnorm"])
def test_pytorch_counts_the_same_products(small_study, variant):
    overrides = VARIANTS[variant] | {"model.n_layer": 3}
    setting = small_study(overrides, arms={"baseline": {}}).setting("baseline")
    assert counted_flops_per_token(setting, V) == model_size(setting, V, small_study().folder)[1]


def test_products_of_an_added_mlp_are_counted(small_study, monkeypatch):
    monkeypatch.setitem(parts("mlps"), "added", parts("mlps")["swiglu"])
    added, swiglu = (small_study({"model.mlp.kind": kind}) for kind in ("added", "swiglu"))
    sizes = {model_size(study.setting("baseline"), V, study.folder) for study in (added, swiglu)}
    assert len(sizes) == 1


OWN = """
import torch
from torch import nn

class Twice(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.up = nn.Linear(model.d_model, model.d_model)
    def forward(self, x):
        return self.up(self.up(x))

class Asks(nn.Identity):
    def __init__(self, model):
        super().__init__()
    def forward(self, x):
        return x * x.mean().item()
"""


def test_products_of_own_modules_are_counted(small_study):
    setting = small_study({"model.modules.mlp": "own.py:Twice"}).setting("baseline")
    folder = small_study().folder
    (folder / "own.py").write_text(OWN)
    # Each matrix is used twice, and that of a shipped MLP of ratio 1 twice as well.
    plain = small_study({"model.mlp.ratio": 1}).setting("baseline")
    counted = (count_parameters(setting, V, folder), flops_per_token(plain, V))
    assert model_size(setting, V, folder) == counted
    asks = small_study({"model.modules.mlp": "own.py:Asks"}).setting("baseline")
    assert model_size(asks, V, folder)[1] is None
