"""bfloat16 on a CPU: products are rounded, attention between them is not."""

import math
from contextlib import nullcontext

import pytest
import torch

from paribus.engine.model import Attention, ModelConfig
from paribus.engine.ops import library
from paribus.engine.setting import Data, Model, Setting, Training

from ..tools import disabled_kernels

B, T, D, H, V = 3, 24, 32, 4, 41
SETTING = Setting(
    data=Data(seq_len=T),
    model=Model(n_layer=2, n_head=H, d_model=D),
    training=Training(iterations=1),
)


def attention(dropout: float = 0.0) -> tuple[Attention, torch.Tensor]:
    """The same weights and the same input every time."""
    training = SETTING.training.model_copy(update={"dropout": dropout})
    setting = SETTING.model_copy(update={"training": training})
    layer = Attention(ModelConfig.of(setting, V)).train()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.15, generator=generator)
    layer.dropout.key.fill_(1)
    return layer, torch.randn(B, T, D, generator=generator)


def test_attention_written_out_is_the_fused_one_in_float32():
    fused, x = attention()
    written_out, _ = attention(dropout=1e-15)  # drops nothing, and goes the way of dropout
    outputs = [layer(x) for layer in (fused, written_out)]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-6)
    assert not torch.equal(outputs[1], outputs[0])  # it did go another way
    gradients = [
        torch.autograd.grad(y.square().mean(), layer.qkv.weight)[0]
        for y, layer in zip(outputs, (fused, written_out), strict=True)
    ]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_attention_is_float32_between_bfloat16_products(compiled):
    """What a fused kernel gives of the rounded q, k and v agrees with float64 to 1e-6; ours, which
    rounds its output once, to half a unit in the last place."""
    if compiled and library() is None:
        pytest.skip("no C++ compiler here")
    layer, x = attention()
    seen: dict[str, torch.Tensor] = {}
    layer.qkv.register_forward_hook(lambda module, args, out: seen.update(qkv=out))
    layer.out.register_forward_pre_hook(lambda module, args: seen.update(mixed=args[0]))
    ways = nullcontext() if compiled else disabled_kernels()
    with ways, torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert seen["qkv"].dtype == y.dtype == torch.bfloat16
    assert seen["mixed"].dtype == (torch.bfloat16 if compiled else torch.float32)
    qkv = seen["qkv"].double().view(B, T, 3, H, D // H)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(-1, -2) / math.sqrt(D // H)
    scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
    expected = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D)
    half = 2**-8 if compiled else 0.0
    torch.testing.assert_close(seen["mixed"].double(), expected, rtol=half, atol=1e-6)
