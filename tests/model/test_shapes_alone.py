"""A model on the device "meta": the shapes of the real one, and no more work than shapes take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.engine.model import build_model
from paribus.study import Study

# Every way of drawing that constructors of the shipped parts have, and what users' may have.
COUNTING = """
import sys, torch
from pathlib import Path
from paribus import load_study
from paribus.engine.model import count_parameters, counted_flops_per_token, training_flops_per_token
from paribus.engine.model.build import ShapesAlone

for name in ("quickstart", "embedding-norm", "rotary-or-learned", "swiglu-or-gelu"):
    study = load_study(name)
    for arm in study.arms:
        assert count_parameters(study.setting(arm), 65) > 0
before = torch.get_rng_state()
with torch.device("meta"), ShapesAlone():
    torch.nn.Conv1d(2, 2, 2), torch.nn.MultiheadAttention(4, 2), torch.nn.GRU(2, 2)
    torch.nn.init.trunc_normal_(torch.empty(3)).uniform_().exponential_()
assert before.equal(torch.get_rng_state())
assert "torch._dynamo" not in sys.modules

setting = load_study("quickstart", {"model.n_layer": 1}).setting("baseline")
counted = counted_flops_per_token(setting, 65)
assert counted == training_flops_per_token(setting, 65)
assert "torch._dynamo" not in sys.modules and "_dynamo" not in vars(torch)

# Whoever has the compiler really, has it, and what was counted without it is hidden from it again.
own = load_study("quickstart", {"model.n_layer": 1, "model.modules.mlp": "own.py:Breaks"})
assert counted_flops_per_token(own.setting("baseline"), 65, Path(sys.argv[1])) < counted
assert torch._dynamo.graph_break and counted_flops_per_token(setting, 65) == counted
"""
BREAKS = """
import torch

class Breaks(torch.nn.Identity):
    def __init__(self, model):
        super().__init__()
    def forward(self, x):
        torch._dynamo.graph_break()
        return x
"""


@pytest.mark.slow
def test_counting_does_not_import_the_compiler(tmp_path: Path) -> None:
    """PyTorch's own draws and operations on that device do, which takes seconds of a start."""
    (tmp_path / "own.py").write_text(BREAKS)
    arguments = [sys.executable, "-c", COUNTING, str(tmp_path)]
    subprocess.run(arguments, check=True, timeout=300)


def test_shapes_are_those_of_the_model(small_study: Callable[..., Study]) -> None:
    study = small_study()
    for arm in study.arms:
        real, shapes = (
            {
                name: (value.shape, value.dtype)
                for name, value in build_model(study.setting(arm), 50, device=device)
                .state_dict()
                .items()
            }
            for device in ("cpu", "meta")
        )
        assert real == shapes
