"""Norms, activations, linear maps and AdamW by compiled kernels: PyTorch's numbers."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paribus.engine.ops import functional, library
from paribus.engine.ops.functional import linear, norm
from paribus.engine.ops.kernels import linear_maps, rowwise

pytestmark = pytest.mark.skipif(
    library() is None, reason="no C++ compiler here: PyTorch's kernels are used"
)
WIDTHS = (128, 37, 1, 400)


def drawn(*shapes: tuple[int, ...], seed: int = 1) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) for shape in shapes]


def answers(call: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    """What `call` gives, and its gradients by all that it is given."""
    leaves = [x.detach().clone().requires_grad_() for x in given]
    y = call(*leaves)
    (weights,) = drawn(tuple(y.shape), seed=2)
    return [y.detach(), *torch.autograd.grad(y, leaves, weights.to(y.dtype))]


def require_alike(ours: Callable[..., Tensor], known: Callable[..., Tensor], given: list[Tensor]):
    """In float32, what `known` gives in float64."""
    found = answers(ours, given)
    wanted = answers(known, [x.double() for x in given])
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("D", WIDTHS)
@pytest.mark.parametrize("has_bias", [True, False])
def test_layer_norm(D, has_bias):
    given = drawn((3, 5, D), (D,), *[(D,)] * has_bias)

    def ours(x: Tensor, gain: Tensor, bias: Tensor | None = None) -> Tensor:
        assert rowwise.supports_norm(x, gain, bias)
        return norm(x, gain, bias, 1e-5, centred=True)

    require_alike(ours, lambda x, *rest: F.layer_norm(x, (D,), *rest, eps=1e-5), given)


@pytest.mark.parametrize("D", WIDTHS)
def test_rms_norm_with_and_without_a_gain(D):
    x, gain = drawn((3, 5, D), (D,))

    def ours(x: Tensor, gain: Tensor | None = None) -> Tensor:
        return norm(x, gain, None, 1e-6, centred=False)

    require_alike(ours, lambda *given: F.rms_norm(given[0], (D,), *given[1:], eps=1e-6), [x, gain])
    require_alike(ours, lambda x: F.rms_norm(x, (D,), eps=1e-6), [x])


@pytest.mark.parametrize(("kind", "known"), functional.ACTIVATIONS.items())
def test_activations(kind, known):
    (x,) = drawn((7, 43))
    x = x * 4
    x[0, :4] = torch.tensor([0.0, -30.0, 30.0, -1e-4])
    require_alike(lambda x: functional.activation(kind, x), known, [x])
    lower = x.bfloat16()
    found = answers(lambda x: functional.activation(kind, x), [lower])
    wanted = answers(known, [lower])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=2**-12, rtol=2**-7)
    broken = torch.full((20,), float("nan"))
    assert functional.activation(kind, broken).isnan().all()


def test_gated_activation():
    gate, up = drawn((4, 31), (4, 31))
    require_alike(functional.gated, lambda gate, up: F.silu(gate) * up, [gate * 5, up])
    assert not rowwise.supports_activation(gate, up.bfloat16())
    assert not rowwise.supports_activation(gate, up[:1])


@pytest.mark.parametrize("N", [1, 3, 11, 300])  # less than a tile, rows beside one, two chunks
@pytest.mark.parametrize(("K", "M"), [(128, 96), (35, 45), (7, 1)])
def test_products_of_every_size(N, K, M):
    x, weight, bias = drawn((N, K), (M, K), (M,))
    require_alike(linear, F.linear, [x, weight, bias])
    require_alike(linear, F.linear, [x[:, None], weight])
    apart = linear(x.t().contiguous().t(), weight.t().contiguous().t(), bias)
    together = linear(x, weight, bias)
    if linear_maps.multiplies(torch.float32):  # of ours, the same bits wherever the numbers lie
        assert torch.equal(apart, together)
    else:  # a processor of AVX2 alone has PyTorch's
        torch.testing.assert_close(apart, together)


@pytest.mark.parametrize("N", [1, 11, 525])
@pytest.mark.parametrize(("K", "M"), [(128, 96), (34, 46)])
def test_products_of_bfloat16(N, K, M):
    x, dy, weight, bias = drawn((N, K), (N, M), (M, K), (M,))
    x, dy = x.bfloat16(), dy.bfloat16()
    rounded, wide_x, wide_dy = (one.to(torch.bfloat16).double() for one in (weight, x, dy))
    y = linear_maps.times(x, weight, bias, transposed=True)
    torch.testing.assert_close(y.double(), wide_x @ rounded.T + bias, atol=1e-4, rtol=2**-8)
    dx = linear_maps.times(dy, weight)
    torch.testing.assert_close(dx.double(), wide_dy @ rounded, atol=1e-4, rtol=2**-8)
    dweight, dbias = linear_maps.column_products(dy, x, has_bias=True)
    torch.testing.assert_close(dweight.double(), wide_dy.T @ wide_x, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(dbias.double(), wide_dy.sum(0), atol=1e-4, rtol=1e-5)


def test_a_product_s_row_does_not_depend_on_those_beside_it():
    x, weight, bias = (one.requires_grad_() for one in drawn((30, 64), (40, 64), (40,)))
    whole = linear(x, weight, bias)
    (of_whole,) = torch.autograd.grad(whole.square().sum(), x)
    part = x[11:24].detach().requires_grad_()
    few = linear(part, weight, bias)
    (of_few,) = torch.autograd.grad(few.square().sum(), part)
    if linear_maps.multiplies(torch.float32):
        assert torch.equal(few, whole[11:24])
        assert torch.equal(of_few, of_whole[11:24])
    torch.testing.assert_close(of_few, of_whole[11:24])


def test_autocast_rounds_where_pytorch_s_does():
    given = drawn((4, 16, 64), (64,), (64,), (96, 64), (96,), (64, 96))

    def ours(x, gain, bias, up, up_bias, down):
        h = norm(x, gain, bias, 1e-5, centred=True, cast_output=True)
        assert h.dtype == torch.bfloat16
        return x + linear(functional.activation("gelu", linear(h, up, up_bias)), down)

    def known(x, gain, bias, up, up_bias, down):
        h = F.layer_norm(x, (64,), gain, bias)
        return x + F.linear(F.gelu(F.linear(h, up, up_bias)), down)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = answers(ours, given), answers(known, given)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype == torch.float32
        error = (one - other).norm() / other.norm()
        assert error < 5e-3  # a last bit of bfloat16 here and there
