"""What comes before the first trial: mistakes are told, and costs are estimated."""

import pytest
import torch

import paribus
from paribus.engine.data import load_dataset
from paribus.engine.execution.start import estimate

from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")


def test_errors_come_first(small_study, tmp_path):
    if not torch.cuda.is_available():
        with refused("value", match="'cuda'"):
            paribus.run(small_study(), tmp_path / "r", device="cuda")
    with refused("value", match="workers = 0"):
        paribus.run(small_study(), tmp_path / "r", workers=0)
    with refused("value", match="workers = -1"):
        estimate(small_study(), workers=-1)
    assert not (tmp_path / "r").exists()


def test_what_fails_in_a_stack_fails_in_the_dry_run(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text(
        "from torch import nn\n"
        "class Branches(nn.LayerNorm):\n"
        "    def __init__(self, model): super().__init__(model.d_model)\n"
        "    def forward(self, x): return super().forward(x) if self.weight.sum() > 0 else x\n"
    )
    arms = {"baseline": {}, "own": {"set": {"model.modules.final_norm": "ideas.py:Branches"}}}
    with refused("value", match="arm 'own'"):
        paribus.run(small_study(arms=arms), tmp_path / "r", workers=1, stack=2)
    assert not (tmp_path / "r").exists()


def test_an_estimate_counts_what_it_says(small_study):
    study = small_study()
    cost = estimate(study, workers=1, price=3.6)
    vocab, d, t = load_dataset(study.data, study.folder).vocab_size, 16, 16
    blocks = 2 * (12 * d * d + 13 * d)
    base = cost.arms["baseline"]
    assert base.parameters == vocab * d + t * d + blocks + 2 * d
    assert cost.arms["layernorm"].parameters == base.parameters + 2 * d
    assert base.tokens == 8 * 4 * 16
    per_token = 6 * (vocab * d + 2 * 12 * d * d) + 12 * 2 * d * t
    assert base.flops == per_token * 512
    assert cost.rate is not None and cost.rate.step_seconds is not None
    step = cost.rate.step_seconds
    assert 0 < step < 5
    # Norms have no products: every trial takes 8 steps as long as the measured one.
    hours = len(study.trials) * 8 * step / 3600
    assert cost.hours == pytest.approx(hours) == cost.device_hours
    assert cost.price == pytest.approx(3.6 * hours)


def test_an_estimate_is_of_the_run_that_it_is_asked_for(small_study):
    """Two stacks of three on one worker: half as many steps as one by one, each of three."""
    study = small_study(seeds=[1, 2, 3], arms={"baseline": {}, "b": {"set": {"model.bias": False}}})
    cost = estimate(study, workers=4, stack=3)
    assert cost.rate.workers == 2, "no more workers than stacks"
    steps = study.setting(study.baseline).iterations * cost.rate.step_seconds
    assert cost.hours == pytest.approx(steps / 3600)
    with refused("value", match="stack ="):
        estimate(study, stack=0)
