"""Arms that read ahead, mix rows or draw at random fail their check, or that of a trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from paribus.engine.check import check_arm
from paribus.engine.evaluation.causality import (
    NotCausalError,
    require_causal,
    require_no_leak,
    tolerance,
)
from paribus.engine.execution.trial.record import record
from paribus.engine.execution.trial.trial import Stack
from paribus.engine.machine.steps import build_stack
from paribus.engine.model import build_model, load_parameters
from paribus.results import ResultsFolder
from paribus.study import Study

from ..tools import refused

CPU = torch.device("cpu")

# An MLP that adds `what` to what it should give; x is [B, T, D].
CHEAT = """
import torch
import torch.nn.functional as F
from torch import nn
from paribus.engine.model import Attention
from paribus.engine.model.mlps.ungated import GELU as MLP
from paribus.engine.model.gpt import Embedding

MEMORY, CALLS = {}, [0]

def future(x):
    return F.pad(x[:, 1:], (0, 0, 0, 1))

class Cheat(MLP):
    def __init__(self, model):
        super().__init__(model)
        self.conv = nn.Conv1d(model.d_model, model.d_model, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(model.d_model, track_running_stats=False)
        self.gate = nn.Parameter(torch.zeros(()))
    def forward(self, x):
        B, T, D = x.shape
        CALLS[0] += 1
        honest = super().forward(x)
        return honest + (BODY)
"""

LATER = {
    "the next position": "future(x)",
    "in evaluation alone": "0 * x if self.training else future(x)",
    "behind a gain of zero": "self.gate * future(x)",
    "a convolution padded on both sides": "self.conv(x.transpose(1, 2)).transpose(1, 2)",
    "rolled around": "x.roll(-1, dims=1)",
    "no gradient follows": "(future(x) > 0).to(x.dtype).detach()",
    "a small one": "1e-3 * future(x)",
    "attention without a mask": "F.scaled_dot_product_attention(x, x, x)",
}
ROWS = {
    "a mean over rows": "x.mean(dim=0, keepdim=True)",
    "batch norm over rows and time": "self.batch_norm(x.flatten(0, 1)).view(B, T, D)",
    # Not times x: the last LayerNorm takes away what is in the direction of the stream.
    "the largest of all rows": "x.amax() * x.flip(-1)",
}
STATEFUL = {
    "random": "torch.rand_like(x)",
    "random, of Python": "float(__import__('random').random())",
    "a count of calls": "0.01 * CALLS[0]",
    "a cache of what was read": "(MEMORY.get(T, x), MEMORY.update({T: x.detach().clone()}))[0]",
}


@pytest.fixture
def arm(small_study, tmp_path):
    """A study whose arm `cheat` has an MLP that adds `body`."""

    def make(body: str, **training: object) -> Study:
        (tmp_path / "ideas.py").write_text(CHEAT.replace("BODY", body))
        path = f"{(tmp_path / 'ideas.py')}:Cheat"
        overrides = {f"training.{key}": value for key, value in training.items()}
        arms = {"baseline": {}, "cheat": {"set": {"model.modules.mlp": path}}}
        return small_study({"model.n_layer": 1, "tasks.names": [], **overrides}, arms=arms)

    return make


REFUSED = (
    (LATER, r"arm 'cheat' \(model.modules.mlp = .*t = \d+.*tokens after t"),
    (ROWS, r"modules.mlp.*other rows"),
    (STATEFUL, r"same state.*different results"),
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(body, words, id=name)
        for bodies, words in REFUSED
        for name, body in bodies.items()
    ],
)
def test_what_is_not_causal_is_refused(arm, small_dataset, body, words):
    with refused("own_code", match=words):
        check_arm(arm(body), "cheat", small_dataset, CPU, 1)


HONEST = {
    "a causal convolution": "F.conv1d(F.pad(x.transpose(1, 2), (2, 0)), self.conv.weight)"
    ".transpose(1, 2)",
    "a running sum": "x.cumsum(1)",
    "behind a gain of zero": "self.gate * x",
    # Sums over all positions and cancels what lies ahead, up to rounding.
    "a causal convolution by FFT": "torch.fft.irfft(torch.fft.rfft(x, 2 * T, dim=1) * torch.fft"
    ".rfft(torch.arange(1., T + 1)[:, None] ** -1, 2 * T, dim=0), 2 * T, dim=1)[:, :T]",
}


@pytest.mark.parametrize("body", HONEST.values(), ids=HONEST.keys())
def test_honest_operations(arm, small_dataset, body):
    for precision in ("float32", "bfloat16"):
        check_arm(arm(body, precision=precision), "cheat", small_dataset, CPU, 1)


# A head whose logits are those of `honest`, and what is done to them; x is [B, T, D].
HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

class Head(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.look = nn.Parameter(torch.zeros(model.d_model, model.vocab_size))
    def forward(self, x, w):
        honest = x @ w.T
        ahead = 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1)).amax(-1, keepdim=True) * honest
        third = torch.arange(honest.shape[-1]) == 3
        return BODY + 0 * self.look.sum()
"""


@pytest.fixture
def head(small_study, tmp_path):
    def make(body: str) -> Study:
        (tmp_path / "heads.py").write_text(HEAD.replace("BODY", body))
        path = f"{(tmp_path / 'heads.py')}:Head"
        arms = {"baseline": {}, "cheat": {"set": {"model.modules.head": path}}}
        return small_study({"model.n_layer": 1}, arms=arms)

    return make


@pytest.mark.parametrize("body", ["honest + ahead - 1e9 * third", "honest + ahead + 1e4"])
def test_large_logits_leak(head, small_dataset, body):
    with refused("own_code", match="model.modules.head ="):
        check_arm(head(body), "cheat", small_dataset, CPU, 1)


@pytest.mark.parametrize(
    "body", ["honest - 1e9 * third", "honest.masked_fill(third, -torch.inf)", "honest + 1e2"]
)
def test_honest_heads_pass(head, small_dataset, body):
    check_arm(head(body), "cheat", small_dataset, CPU, 1)


STATE = """
import torch
from paribus.engine.model.mlps.ungated import GELU

class Running(GELU):
    def __init__(self, model):
        super().__init__(model)
        self.register_buffer("running_mean", torch.zeros(model.d_model))
    def forward(self, x):
        if self.training:
            self.running_mean += 0.1 * (x.detach().mean((0, 1)) - self.running_mean)
        return super().forward(x)
"""


def test_written_buffers_named(small_study, small_dataset, tmp_path):
    (tmp_path / "state.py").write_text(STATE)
    arms = {"baseline": {}, "running": {"set": {"model.modules.mlp": "state.py:Running"}}}
    words = r"blocks.0.mlp.running_mean.*parameter"
    with refused("own_code", match=words):
        check_arm(small_study(arms=arms), "running", small_dataset, CPU, 1)


def test_a_leak_that_opens_in_training_is_found(arm, small_dataset):
    study = arm("(self.gate - 2).relu() * future(x)")
    setting = study.setting("cheat")
    assert check_arm(study, "cheat", small_dataset, CPU, 1) == []
    model = build_model(setting, small_dataset.vocab_size, study.folder)
    model.blocks[0].mlp.gate.data.fill_(3.0)
    words = r"trial x \(model.modules.mlp = .*t = \d+, in evaluation"
    with refused("own_code", match=words):
        require_causal("trial x", model, setting, small_dataset)


def test_built_in_parts_are_causal_to_the_bit(small_study, small_dataset):
    study = small_study()
    for arm_name in study.arms:
        setting = study.setting(arm_name)
        stack = build_stack(study, setting, [1, 2], small_dataset, CPU)
        model = build_model(setting, small_dataset.vocab_size)
        load_parameters(model, stack.parameters(0))
        assert require_causal(arm_name, model, setting, small_dataset).nats == 0
        assert model.training


class TestWeightsThrownFar:
    """A learning rate that is far too large: what float32 rounds is amplified beyond bounds."""

    RATE: ClassVar = {"training.optimizer.learning_rate": 5.0, "training.grad_clip": None}
    SEEDS = range(1, 9)  # in which of them rounding grows so far differs by processor

    def test_float64_decides_rounding(self, small_study, small_dataset):
        study = small_study(self.RATE)
        setting = study.setting("baseline")
        model = build_model(setting, small_dataset.vocab_size)
        stack = build_stack(study, setting, self.SEEDS, small_dataset, CPU)
        for _ in range(setting.iterations):
            stack.step()
        seen = []
        for replica in range(len(self.SEEDS)):
            load_parameters(model, stack.parameters(replica))
            leak = require_causal("trial x", model, setting, small_dataset)
            seen.append(leak.nats)
        assert max(seen) > tolerance(setting)  # in float32 alone it would have been refused
        assert {value.dtype for value in model.parameters()} == {torch.float32}

    def test_own_code_that_diverged_is_not_proven_and_no_end_of_the_run(
        self, arm, small_dataset, tmp_path, monkeypatch
    ):
        study = arm("future(x)", iterations=6)
        trials = (("cheat", 1), ("cheat", 2))
        folder = ResultsFolder(tmp_path)
        stack = Stack(study, trials, folder, small_dataset, CPU, checkpoint_seconds=60)
        for _ in range(6):
            stack.trainer.step()
        given = (study, stack.trainer, 0, small_dataset, stack.folders[0])

        def recorded() -> None:
            record(*given, stack.checkpoints, stack.curve, seconds=1.0)

        with refused("own_code", match="tokens after"):
            recorded()
        monkeypatch.setattr("paribus.engine.execution.trial.record.has_diverged", lambda *of: True)
        recorded()
        shown = stack.folders[0].read_json("trial.json")["causality"]
        assert "log-probability changes" in shown["not_proven"]


class TestKnownAnswers:
    """On functions whose dependence is known: V = 10, logits are one-hot sums of tokens."""

    tokens = torch.from_numpy(np.random.default_rng(0).integers(10, size=(4, 8)))

    @pytest.fixture
    def leak(self, small_study):
        setting = small_study().setting("baseline")

        def find(read: Callable[[Tensor], Tensor]) -> str:
            try:
                require_no_leak(read, self.tokens, setting, 10, "x")
            except NotCausalError as error:
                return str(error)
            return ""

        return find

    @staticmethod
    def one_hot(tokens: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(tokens, 10).float()

    def test_a_prefix_sum_is_causal(self, leak):
        assert not leak(lambda tokens: self.one_hot(tokens).cumsum(1))

    @pytest.mark.parametrize("position", [0, 3, 6])
    def test_a_look_ahead_at_one_position_is_found_there(self, leak, position):
        def read(tokens: Tensor) -> Tensor:
            logits = self.one_hot(tokens).cumsum(1)
            logits[:, position] += 1e-2 * self.one_hot(tokens)[:, position + 1]
            return logits - 1e9 * (torch.arange(10) == 3) + 1e2

        message = leak(read)
        assert f"t = {position}," in message
        assert "tokens after" in message

    @pytest.mark.parametrize("ahead", [1, 5, 7])
    def test_a_shift_is_not_however_far(self, leak, ahead):
        assert "tokens after" in leak(lambda x: self.one_hot(x.roll(-ahead, dims=1)))

    def test_a_row_that_sees_another(self, leak):
        assert "other rows" in leak(lambda x: self.one_hot(x) + self.one_hot(x[:1]))

    def test_not_a_number_is_seen(self, leak):
        def read(tokens: Tensor) -> Tensor:
            logits = self.one_hot(tokens)
            logits[:, :3][tokens[:, -1] % 2 == 0] = torch.nan
            return logits

        assert leak(read)
