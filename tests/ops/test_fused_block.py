"""A block asked at once gives every bit that its parts give, one after the other."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from paribus.engine.model import GPT, build_model
from paribus.engine.ops import fused_block, library
from paribus.engine.setting import Data, Setting, Training
from paribus.engine.setting.architecture import Model

pytestmark = pytest.mark.skipif(
    library() is None, reason="no C++ compiler here: PyTorch's kernels are used"
)
V, T = 23, 20


def model_of(**keys: object) -> GPT:
    shape = {"n_layer": 2, "n_head": 2, "d_model": 32, **keys}
    setting = Setting(data=Data(seq_len=T), model=Model(**shape), training=Training(iterations=1))
    return build_model(setting, V).train()


def answers(model: GPT, *, lower: bool) -> list[Tensor]:
    """The logits, and the gradients of all parameters."""
    tokens = torch.arange(3 * T).reshape(3, T) * 7 % V
    with torch.autocast("cpu", dtype=torch.bfloat16) if lower else nullcontext():
        logits = model(tokens)
    return [logits, *torch.autograd.grad(logits.float().square().mean(), [*model.parameters()])]


@pytest.fixture
def asked(monkeypatch):
    """One more number for every block that is asked at once."""
    found, plain = [], fused_block._Block.apply

    def counted(*given):
        found.append(1)
        return plain(*given)

    monkeypatch.setattr(fused_block._Block, "apply", counted)
    return found


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"bias": False, "mlp": {"kind": "relu2"}},
        {"norm": {"kind": "rmsnorm"}, "mlp": {"kind": "gelu_tanh"}},
    ],
)
@pytest.mark.parametrize("hook", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_fused_blocks_keep_bits(keys, lower, hook, asked):
    model = model_of(**keys)
    at_once = answers(model, lower=lower)
    assert len(asked) == 2
    # Somebody who looks inside has the parts asked one after the other, and changes no bit.
    for block in model.blocks:
        getattr(block.mlp, f"register_{hook}_hook")(lambda *_: None)
    watched = answers(model, lower=lower)
    assert len(asked) == 2
    for one, other in zip(at_once, watched, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "keys",
    [
        {"positions": {"kind": "rotary"}},
        {"norm": {"placement": "post"}},
        {"norm": {"kind": "center"}},
        {"mlp": {"kind": "swiglu"}},
        {"attention": {"n_kv_head": 1}},
        {"attention": {"window": 8}},
        {"attention": {"softcap": 30.0}},
        {"attention": {"qk_norm": "rmsnorm"}},
    ],
)
def test_other_blocks_are_asked_part_by_part(keys, asked):
    answers(model_of(**keys), lower=True)
    assert not asked


def test_dropout(asked):
    model = model_of()
    for block in model.blocks:
        block.mlp_dropout.p = 0.5
    model(torch.zeros(1, T, dtype=torch.int64))
    assert not asked
