"""Our own kernel: PyTorch's numbers, in any layout, and each sequence alone."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.engine.ops import identity
from paribus.engine.ops.functional import attention
from paribus.engine.ops.kernels import compiling
from paribus.errors import ParibusError

from ..tools import refused

compiled = pytest.mark.skipif(
    compiling.library() is None, reason="no C++ compiler here: PyTorch's kernels are used"
)
SHAPES = [
    (2, 3, 128, 16),
    (1, 2, 37, 5),
    (1, 1, 8, 1),
    (1, 2, 70, 100),
    (1, 1, 33, 128),
]


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k, v, is_causal=True)


def split(
    shape: tuple[int, ...], seed: int, dtype: torch.dtype
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Queries, keys and values as the model has them: views of one projection."""
    B, H, T, K = shape
    draw = torch.Generator().manual_seed(seed)
    qkv = torch.randn(B, T, 3 * H, K, generator=draw).to(dtype).requires_grad_()
    return qkv, qkv.transpose(1, 2).split((H, H, H), dim=1)


def answers(attend, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    qkv, parts = split(shape, 1, torch.bfloat16 if dtype == torch.bfloat16 else torch.float32)
    if dtype == torch.float64:
        qkv = qkv.detach().double().requires_grad_()
        parts = qkv.transpose(1, 2).split((shape[1],) * 3, dim=1)
    y = attend(*parts)
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(y, qkv, weights.to(y.dtype))
    return y.detach(), gradient


@compiled
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_are_those_of_pytorch_in_float64(shape: tuple[int, ...]) -> None:
    found = answers(causal_attention, shape, torch.float32)
    known = answers(
        lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True), shape, torch.float64
    )
    for one, other in zip(found, known, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


@compiled
def test_bfloat16_is_rounded_once_on_the_way_out() -> None:
    shape = SHAPES[0]
    found, gradient = answers(causal_attention, shape, torch.bfloat16)
    assert found.dtype == gradient.dtype == torch.bfloat16

    def lifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
        return y.bfloat16()

    known, known_gradient = answers(lifted, shape, torch.bfloat16)
    assert (found != known).float().mean() < 1e-3  # ties, where float32 sums differ in a last bit
    torch.testing.assert_close(found, known, atol=0, rtol=2**-7)
    torch.testing.assert_close(gradient, known_gradient, atol=2**-6, rtol=2**-5)


@compiled
def test_what_comes_later_or_beside_changes_no_bit() -> None:
    _, (q, k, v) = (x for x in split((3, 2, 50, 16), 4, torch.float32))
    whole = causal_attention(q, k, v)
    later = [x.detach().clone() for x in (q, k, v)]
    for x in later:
        x[:, :, 21:] = 1e3
    assert torch.equal(causal_attention(*later)[:, :, :21], whole[:, :, :21])
    assert torch.equal(causal_attention(q[1:2], k[1:2], v[1:2]), whole[1:2])
    broken = [x.detach().clone() for x in (q, k, v)]
    broken[0][0, 0, 5] = math.nan
    y = causal_attention(*broken)
    assert y[0, 0, 5].isnan().all()
    assert torch.equal(y[1:], whole[1:])


@compiled
def test_mapped_replicas_are_bit_equal_to_each_alone() -> None:
    parts = [split((2, 2, 24, 8), seed, torch.float32)[0].detach() for seed in range(3)]

    def loss(qkv: Tensor) -> Tensor:
        q, k, v = qkv.transpose(1, 2).split((2, 2, 2), dim=1)
        return causal_attention(q, k, v).square().sum()

    stacked = torch.stack(parts).requires_grad_()
    (together,) = torch.autograd.grad(torch.func.vmap(loss)(stacked).sum(), stacked)
    for one, found in zip(parts, together, strict=True):
        alone = one.requires_grad_()
        assert torch.equal(torch.autograd.grad(loss(alone), alone)[0], found)


def test_pytorchs_kernels_without_a_compiler(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(compiling.SWITCH, "auto")
    assert (compiling.library(), identity()) == (None, "torch")
    compiling.library.cache_clear()
    monkeypatch.setenv(compiling.SWITCH, "on")
    with refused("not_installed", match=r"no C\+\+ compiler"):
        compiling.library()
    monkeypatch.setenv(compiling.SWITCH, "fast")
    with refused("value", match="fast"):
        compiling.library()
    monkeypatch.setenv(compiling.SWITCH, "off")
    assert compiling.library() is None


@pytest.mark.slow
@compiled
def test_wrong_numbers(afresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = shutil.copytree(compiling.SOURCES, tmp_path / "sources")
    shared = sources / "vectors.h"
    shared.write_text(shared.read_text().replace("5.0000001201e-1f", "5.1e-1f"))
    monkeypatch.setattr(compiling, "SOURCES", sources)
    monkeypatch.setattr(compiling, "FLAGS", (*compiling.FLAGS, "-O1"))  # compiles faster
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(compiling.SWITCH, "on")
    with pytest.raises(ParibusError, match="wrong results"):
        compiling.library()
    assert not list((tmp_path / "cache").rglob("*.so"))
