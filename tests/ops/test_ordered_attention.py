"""Attention's backward pass alone requires deterministic algorithms, and changes nothing else."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.engine.ops.functional import ordered_attention


@pytest.fixture
def wished():
    """As a worker on a GPU is set up; then as it was."""
    before = torch.get_deterministic_debug_mode(), torch.backends.cuda.cudnn_sdp_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    yield
    torch.set_deterministic_debug_mode(before[0])
    torch.backends.cuda.enable_cudnn_sdp(before[1])


def tensors(*shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, requires_grad=True) for _ in range(3)]


def required() -> bool:
    outright = not torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled() and outright


def test_determinism_is_required_in_backward(wished, monkeypatch):
    heard: list[tuple[str, bool]] = []

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            heard.append(("forward", required()))
            return q + k + v

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            heard.append(("backward", required()))
            return grad, grad, grad

    def noted(name: str, x: Tensor) -> Tensor:
        x.register_hook(lambda grad: heard.append((name, required())))
        return x

    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *x, **_: Attention.apply(*x))
    q, k, v = tensors(2, 3, 4, 5)
    beside = noted("beside", q * 3)
    y = ordered_attention(noted("before", q * 2), k * 2, v * 2, is_causal=True)
    noted("after", y * 2 + beside).sum().backward()
    assert heard == [
        ("forward", False),
        ("after", False),
        ("backward", True),
        ("before", False),
        ("beside", False),
    ]
    assert not required()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_long_sequences_have_the_same_gradients_every_time(wished):
    q, k, v = (x.to("cuda", torch.bfloat16).detach() for x in tensors(4, 8, 2048, 128))
    found = []
    for _ in range(5):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        ordered_attention(
            leaves[0], leaves[1], leaves[2], is_causal=True
        ).float().square().sum().backward()
        found.append([x.grad for x in leaves])
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], again, strict=True))
