"""A model on the device "meta": the shapes of the real one, and no more work than shapes take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from paribus.model import build_model
from paribus.study import Study

# Every way of drawing that constructors of the shipped parts have, and what users' may have.
COUNTING = """
import sys, torch
from paribus import load_study
from paribus.model import count_parameters
from paribus.model.build import ShapesAlone

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
"""


def test_counting_parameters_does_not_import_the_compiler() -> None:
    """PyTorch's own draws on that device do, which takes seconds of the first run's start."""
    subprocess.run([sys.executable, "-c", COUNTING], check=True, timeout=300)


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
