"""Contracts that every part keeps, and known answers of those with options."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.model import (
    GPT,
    Attention,
    KeyValueCache,
    ModelConfig,
    build_model,
    initial_parameters,
    load_parameters,
)
from paribus.engine.model.parts import parts
from paribus.engine.probes import shipped_probes
from paribus.engine.setting import Data, Setting, Training
from paribus.engine.setting.architecture import Model
from paribus.engine.training import Trainer
from paribus.errors import ParibusError

from .variants import VARIANTS

T, V = 16, 29
LARGE = {"model.init.std": 0.3}  # differences are then not lost in rounding
each = pytest.mark.parametrize("name", VARIANTS)


@pytest.fixture
def setting_of(small_study):
    arms = {"baseline": {}}
    return lambda name: small_study(LARGE | VARIANTS[name], arms=arms).setting("baseline")


def with_weights(setting: Setting) -> GPT:
    model = build_model(setting, V).eval()
    drawn = initial_parameters(model, setting, seed=3)
    load_parameters(model, {name: one.value for name, one in drawn.items()})
    return model


def some_tokens(B: int = 3) -> torch.Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(1))


@each
@torch.no_grad()
def test_cached_pieces_give_all_logits(setting_of, name):
    model, tokens = with_weights(setting_of(name)), some_tokens()
    assert model.can_cache
    whole = model(tokens)
    assert whole.std() > 1e-3
    for pieces in ([1] * T, [5, 1, 1, 9]):
        cache = KeyValueCache(n_layer=2)
        read = [model(piece, cache) for piece in tokens.split(pieces, dim=1)]
        torch.testing.assert_close(torch.cat(read, dim=1), whole, rtol=1e-4, atol=1e-5)


@each
def test_a_stack_agrees_with_its_replicas_alone(setting_of, small_dataset, name):
    setting, probes = setting_of(name), [shipped_probes()["attention_logits"]]
    together = Trainer(setting, [1, 2], small_dataset, probes=probes)
    together.step()
    for r, seed in enumerate((1, 2)):
        alone = Trainer(setting, [seed], small_dataset, probes=probes)
        alone.step()
        found, expected = together.state(r).measured[0], alone.state(0).measured[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def config(seq_len: int = T, **model: Any) -> ModelConfig:
    table = {"n_layer": 1, "n_head": 4, "d_model": 32} | model
    setting = Setting(
        data=Data(seq_len=seq_len),
        model=Model.model_validate(table),
        training=Training(iterations=1),
    )
    return ModelConfig.from_setting(setting, V)


def by_hand(layer: Attention, x: torch.Tensor, model: ModelConfig) -> torch.Tensor:
    """Attention in float64, a query and a key at a time."""
    H, G, K = model.n_head, model.n_kv_head, model.head_width
    B, T, _ = x.shape
    qkv = (x.double() @ layer.qkv.weight.double().T).numpy()
    q = qkv[..., : H * K].reshape(B, T, H, K)
    k = qkv[..., H * K : (H + G) * K].reshape(B, T, G, K)
    v = qkv[..., (H + G) * K :].reshape(B, T, G, K)
    if model.attention.qk_norm == "rmsnorm":
        q, k = (z / np.sqrt((z**2).mean(-1, keepdims=True) + 1e-6) for z in (q, k))
    mixed = np.zeros((B, T, H, K))
    window, cap = model.attention.window or T, model.attention.softcap
    for b, t, h in np.ndindex(B, T, H):
        seen = range(max(0, t - window + 1), t + 1)
        scores = np.array([q[b, t, h] @ k[b, s, h * G // H] for s in seen]) / math.sqrt(K)
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        weights = np.exp(scores - scores.max())
        values = np.stack([v[b, s, h * G // H] for s in seen])
        mixed[b, t, h] = weights / weights.sum() @ values
    return torch.from_numpy(mixed.reshape(B, T, H * K)) @ layer.out.weight.double().T


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_kv_head": 2},
        {"softcap": 0.5},
        {"window": 3},
        {"window": T},
        {"qk_norm": "rmsnorm"},
        {"n_kv_head": 1, "softcap": 2.0, "window": 1, "qk_norm": "rmsnorm"},
    ],
    ids=str,
)
@torch.no_grad()
def test_attention_is_what_its_options_say(options):
    model = config(bias=False, attention=options)
    layer = Attention(model).eval()
    generator = torch.Generator().manual_seed(2)
    for name, parameter in layer.named_parameters():
        if "norm" not in name:
            parameter.normal_(0, 0.4, generator=generator)
    x = torch.randn(2, T, 32, generator=generator)
    expected = by_hand(layer, x, model)
    torch.testing.assert_close(layer(x).double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("d_model", "ratio", "bias"), [(128, 4, True), (48, 1, False)])
def test_matched_gates_have_as_many_parameters(d_model, ratio, bias):
    def size(kind: str, matched: bool = True) -> int:
        mlp = {"kind": kind, "ratio": ratio, "match_parameters": matched}
        model = config(d_model=d_model, bias=bias, mlp=mlp)
        return sum(p.numel() for p in parts("mlps")[kind].module(model).parameters())

    one_channel = 3 * d_model + 2 * bias
    assert abs(size("swiglu") - size("gelu")) <= one_channel / 2
    assert size("swiglu", matched=False) == 3 * d_model**2 * ratio + bias * (
        2 * d_model * ratio + d_model
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.attention.n_kv_head": 3}, "attention.n_kv_head ="),
        ({"model.positions.kind": "rotary", "model.d_model": 18}, "a head has 9"),
        ({"model.preset": "lama"}, "'llama'"),
    ],
)
def test_impossible_sizes(small_study, overrides, message):
    with pytest.raises(ParibusError, match=message):
        small_study(overrides)
