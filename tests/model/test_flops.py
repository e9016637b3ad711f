"""Operations of a training step, against PyTorch's own counter and by hand."""

import pytest

from paribus.engine.model import (
    counted_flops_per_token,
    training_flops,
    training_flops_per_token,
)

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
    assert counted_flops_per_token(setting, V) == training_flops_per_token(setting, V)
    assert training_flops(setting, V).by == "formula"


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
    found = training_flops(setting, V, folder)
    # The formula would have its matrix used once; it is used twice.
    d, n_layer = setting.model.d_model, setting.model.n_layer
    formula = training_flops_per_token(setting, V, folder)
    assert found == (formula + 6 * n_layer * d * d, "counter")
    asks = small_study({"model.modules.mlp": "own.py:Asks"}).setting("baseline")
    assert training_flops(asks, V, folder) == (None, "counter")
    assert training_flops(asks, V, folder).record == {}
