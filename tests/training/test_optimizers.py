"""Optimizers against PyTorch's own, closed forms and a plain reading of the papers.

Each is compared over several steps, alone and for three replicas with learning rates of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from paribus.declared import declared
from paribus.engine.rows import Rows
from paribus.engine.training.groups import ParameterGroup
from paribus.engine.training.optimizers import Optimizer, find_optimizer
from paribus.engine.training.optimizers.muon import A, B, C, orthogonalised
from paribus.engine.training.stacked_optimizer import StackedOptimizer
from paribus.study.choices import read_options

from ..tools import as_rows

STEPS = 8
DECAY = 0.3
# Two decayed matrices of one shape, one of another, and a bias that is not decayed.
SHAPES = {"a": (6, 4), "b": (6, 4), "c": (3, 8), "bias": (5,)}
OPTIMIZERS = declared("paribus.engine.training.optimizers", Optimizer)
alone_and_stacked = pytest.mark.parametrize("R", [1, 3])


def numbers(R: int, seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: scale * torch.randn(R, *shape, generator=generator) for name, shape in SHAPES.items()
    }


def group(name: str, names: Sequence[str], rates: Sequence[float], **options: Any) -> Any:
    found = find_optimizer(name, "here", None)
    return ParameterGroup(
        found,
        read_options(found.options, options, "options", name),
        tuple(names),
        tuple(n for n in names if n != "bias"),
        (1.0,) * len(rates),
        (DECAY,) * len(rates),
    )


def ours(groups: list[ParameterGroup], rates: Sequence[float]) -> tuple[Rows, StackedOptimizer]:
    """Weights after STEPS steps."""
    R = len(rates)
    weights = as_rows(numbers(R, 0))
    stacked = StackedOptimizer(groups, weights)
    for t in range(STEPS):
        grads = as_rows(numbers(R, 1 + t)).flat
        stacked.update(grads, torch.tensor(rates)[:, None], torch.tensor(t))
        stacked.afterwards(t)
    return weights, stacked


def steps_of(optimizer: Any, named: dict[str, Tensor], R: int, r: int) -> None:
    """Make STEPS steps of another optimizer with the gradients of replica r."""
    for t in range(STEPS):
        for name, grad in numbers(R, 1 + t).items():
            if name in named:
                named[name].grad = grad[r].clone()
        optimizer.step()


def theirs(
    make: Callable[..., Any], rates: Sequence[float], names: Sequence[str] = tuple(SHAPES)
) -> dict[str, Tensor]:
    """The same by another package, one replica after the other; the bias is not decayed."""
    trained = []
    for r, rate in enumerate(rates):
        named = {n: numbers(len(rates), 0)[n][r].clone().requires_grad_() for n in names}
        groups = [{"params": [x for n, x in named.items() if n != "bias"]}]
        if "bias" in named:
            groups.append({"params": [named["bias"]], "weight_decay": 0.0})
        steps_of(make(groups, lr=rate, weight_decay=DECAY), named, len(rates), r)
        trained.append(named)
    return {n: torch.stack([each[n].detach() for each in trained]) for n in names}


RATES = {1: [0.02], 3: [0.01, 0.02, 0.05]}


@alone_and_stacked
def test_adamw_is_pytorch_s(R: int) -> None:
    options = {"betas": (0.8, 0.95), "eps": 1e-6}
    weights, _ = ours([group("adamw", list(SHAPES), RATES[R], **options)], RATES[R])
    for name, values in theirs(partial(torch.optim.AdamW, **options), RATES[R]).items():
        torch.testing.assert_close(weights[name], values, rtol=1e-6, atol=1e-6)


@alone_and_stacked
@pytest.mark.parametrize("adjust_lr", ["original", "match_rms_adamw"])
def test_muon_is_pytorch_s(R: int, adjust_lr: str) -> None:
    """In bfloat16, in which batched products may round otherwise: by a few units of 2^-8."""
    names = ["a", "b", "c"]
    options = {"momentum": 0.9}
    groups = [
        group("muon", names, RATES[R], adjust_lr=adjust_lr, **options),
        group("adamw", ["bias"], RATES[R]),
    ]
    found, stacked = ours(groups, RATES[R])
    assert {slot: list(rows) for slot, rows in stacked.slots.items()} == {
        "momentum_buffer": names,
        "exp_avg": ["bias"],
        "exp_avg_sq": ["bias"],
    }
    reference = partial(torch.optim.Muon, adjust_lr_fn=adjust_lr, **options)
    atol = STEPS * max(RATES[R]) * 2 * 2**-8
    for name, values in theirs(reference, RATES[R], names).items():
        torch.testing.assert_close(found[name], values, rtol=0, atol=atol)
        assert (found[name] - numbers(R, 0)[name]).abs().max() > 0.05


@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3)])
def test_newton_schulz_is_its_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    """X -> a X + (b XX' + c (XX')^2) X acts on the singular values alone: closed form in float64.

    The rows of a batch do not meet, whatever their number of matrices.
    """
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, *shape, generator=generator)
    u, s, v = torch.linalg.svd(x.double(), full_matrices=False)
    s = s / s.square().sum(dim=-1, keepdim=True).sqrt()
    for _ in range(5):
        s = A * s + B * s**3 + C * s**5
    expected = u @ torch.diag_embed(s) @ v
    torch.testing.assert_close(orthogonalised(x, 5).double(), expected, rtol=0, atol=2e-4)
    assert s.max() < 1.3
    assert (orthogonalised(torch.zeros(1, 1, *shape), 5) == 0).all()  # of a frozen replica


SQUARE = {"a": (6, 6), "b": (6, 6), "c": (3, 8), "bias": (5,)}


@alone_and_stacked
def test_schedule_free_is_its_authors_package(R: int) -> None:
    schedulefree = pytest.importorskip("schedulefree")
    options = {"betas": (0.9, 0.99)}
    weights = as_rows(numbers(R, 0))
    stacked = StackedOptimizer([group("schedule_free", list(SHAPES), RATES[R], **options)], weights)
    for t in range(STEPS):
        rates = torch.tensor(RATES[R])[:, None] * min((t + 1) / 3, 1)
        stacked.update(as_rows(numbers(R, 1 + t)).flat, rates, torch.tensor(t))
    for r, rate in enumerate(RATES[R]):
        named = {n: x[r].clone().requires_grad_() for n, x in numbers(R, 0).items()}
        matrices = [x for n, x in named.items() if n != "bias"]
        optimizer = schedulefree.AdamWScheduleFree(
            [{"params": matrices}, {"params": [named["bias"]], "weight_decay": 0.0}],
            **options,
            lr=rate,
            weight_decay=DECAY,
            warmup_steps=3,
        )
        optimizer.train()
        steps_of(optimizer, named, R, r)
        for name, values in named.items():
            torch.testing.assert_close(weights[name][r], values.detach(), rtol=1e-5, atol=1e-6)
        optimizer.eval()
        for name, values in named.items():
            mean = stacked.evaluated()[name][r]
            torch.testing.assert_close(mean, values.detach(), rtol=1e-5, atol=1e-6)
            assert not torch.equal(mean, weights[name][r])


@alone_and_stacked
def test_lion_is_its_paper_s(R: int) -> None:
    """Algorithm 2 of Chen et al. 2023, in float64 and NumPy."""
    weights, _ = ours([group("lion", list(SHAPES), RATES[R], betas=(0.8, 0.95))], RATES[R])
    for name, start in numbers(R, 0).items():
        for r, rate in enumerate(RATES[R]):
            theta, m = start[r].double().numpy(), np.zeros(SHAPES[name])
            for t in range(STEPS):
                g = numbers(R, 1 + t)[name][r].double().numpy()
                step, m = np.sign(0.8 * m + 0.2 * g), 0.95 * m + 0.05 * g
                theta = theta * (1 - rate * (name != "bias") * DECAY) - rate * step
            np.testing.assert_allclose(weights[name][r], theta, rtol=1e-5, atol=1e-5)


@alone_and_stacked
@pytest.mark.parametrize("largest_side", [4, 2048])
def test_soap_is_pytorch_optimizer_s(R: int, largest_side: int, monkeypatch: Any) -> None:
    """With a side too large for a basis too; where both have one, of square matrices alone: the
    null space of others has no basis of its own."""
    package = pytest.importorskip("pytorch_optimizer")
    names = ["a", "b", "c"] if largest_side == 4 else ["a", "b"]
    monkeypatch.setitem(globals(), "SHAPES", {n: SQUARE[n] for n in names})
    monkeypatch.setitem(globals(), "DECAY", 0.0)
    options = {"betas": (0.9, 0.95)}
    groups = [group("soap", names, RATES[R], **options, every=3, largest_side=largest_side)]
    found, stacked = ours(groups, RATES[R])
    reference = partial(
        package.SOAP, **options, precondition_frequency=3, max_precondition_dim=largest_side
    )
    for name, values in theirs(reference, RATES[R], names).items():
        torch.testing.assert_close(found[name], values, rtol=1e-4, atol=1e-4)
    assert ("left_gram" in stacked.slots) and ("a" in stacked.slots["left_gram"]) == (
        largest_side > 4
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_replica_without_a_rate_stays_and_rows_do_not_meet(name: str) -> None:
    names = ["a", "b", "c"] if OPTIMIZERS[name].takes else list(SHAPES)
    rates = [0.0, 0.02, 0.01]

    def trained(wild: bool) -> Rows:
        weights = as_rows({n: x for n, x in numbers(3, 0).items() if n in names})
        stacked = StackedOptimizer([group(name, names, rates)], weights)
        for t in range(4):
            grads = as_rows({n: x for n, x in numbers(3, 1 + t).items() if n in names}).flat
            grads[0] = 0.0  # as the trainer gives them
            stacked.update(grads, torch.tensor(rates)[:, None], torch.tensor(t))
            for rows in stacked.slots.values() if wild else ():
                rows.flat[0] = torch.nan
        return weights

    calm, wild = trained(wild=False), trained(wild=True)
    assert torch.equal(calm.flat[1:], wild.flat[1:])
    for n, rows in calm.items():
        assert torch.equal(rows[0], numbers(3, 0)[n][0])
