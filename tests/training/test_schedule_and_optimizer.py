"""Learning rates by hand; AdamW and clipping against PyTorch's own."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from paribus.model import build_model, parameter_uses
from paribus.study import load_study
from paribus.study.spec import Optimizer, Schedule
from paribus.training import AdamW, clip_factors, is_decayed, learning_rate


def rates(schedule: Schedule, iterations: int) -> list[float]:
    return [learning_rate(1.0, schedule, t, iterations) for t in range(iterations)]


def test_constant() -> None:
    assert rates(Schedule(), 3) == [1.0, 1.0, 1.0]


def test_warmup_is_linear_and_ends_at_the_peak() -> None:
    assert rates(Schedule(warmup=4), 6) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_cosine_by_hand() -> None:
    """After 2 steps of warmup, 4 of half a cosine from 1 to 0.1: 0.1 + 0.45 (1 + cos(pi k / 4))."""
    root = math.sqrt(0.5)
    expected = [0.5, 1.0, 0.1 + 0.45 * (1 + root), 0.55, 0.1 + 0.45 * (1 - root), 0.1]
    assert rates(Schedule(kind="cosine", warmup=2), 6) == pytest.approx(expected)


def test_cosine_to_zero() -> None:
    found = rates(Schedule(kind="cosine", final_fraction=0.0), 100)
    assert found[-1] == pytest.approx(0.0, abs=1e-12)
    assert found[49] == pytest.approx(0.5)
    assert all(a > b for a, b in itertools.pairwise(found))


def test_adamw_is_pytorch_s() -> None:
    generator = torch.Generator().manual_seed(0)
    spec = Optimizer(learning_rate=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
    start = torch.randn(10, generator=generator)
    decayed, plain = (part.clone().requires_grad_() for part in start.split([6, 4]))
    theirs = torch.optim.AdamW(
        [{"params": [decayed]}, {"params": [plain], "weight_decay": 0.0}],
        lr=spec.learning_rate,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
    )
    weights = start.clone()[None]
    ours = AdamW(spec, 6, torch.tensor([[0.3]]), torch.zeros(1, 10), torch.zeros(1, 10))
    for t in range(25):
        grads = torch.randn(10, generator=generator)
        decayed.grad, plain.grad = grads[:6].clone(), grads[6:].clone()
        theirs.step()
        corrections = 1 - torch.tensor(spec.betas, dtype=torch.float64) ** (t + 1)
        ours.update(
            weights, grads[None], torch.full((1, 1), spec.learning_rate), corrections.float()
        )
        expected = torch.cat([decayed, plain]).detach()[None]
        torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-7)


def test_replicas_have_learning_rates_and_weight_decays_of_their_own() -> None:
    grads = torch.ones(3, 4)
    weights = torch.ones(3, 4)
    decay = torch.tensor([[0.1], [0.1], [0.3]])
    adamw = AdamW(Optimizer(), 4, decay, torch.zeros(3, 4), torch.zeros(3, 4))
    adamw.update(weights, grads, torch.tensor([[0.0], [0.1], [0.2]]), torch.tensor([0.1, 0.05]))
    assert (weights[0] == 1).all()
    # The first step of Adam has size lr; decay takes its share of lr.
    expected = [1 - 0.1 - 0.01, 1 - 0.2 - 0.06]
    assert weights[1:, 0].tolist() == pytest.approx(expected, rel=1e-5)


def test_clipping_is_pytorch_s() -> None:
    generator = torch.Generator().manual_seed(1)
    grads = torch.randn(2, 50, generator=generator) * torch.tensor([[0.01], [5.0]])
    norms = grads.norm(dim=1)
    ours = grads * clip_factors(norms, 1.0)[:, None]
    for r in range(2):
        parameter = torch.nn.Parameter(torch.zeros(50))
        parameter.grad = grads[r].clone()
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        torch.testing.assert_close(ours[r], parameter.grad)
    assert (clip_factors(norms, None) == 1).all()


def decayed_names(decay: str, arm: str = "layernorm") -> set[str]:
    model = build_model(load_study("quickstart").setting(arm), 50, device="meta")
    return {name for name, use in parameter_uses(model).items() if is_decayed(use, decay)}


def test_weight_decay_touches_matrices_alone() -> None:
    matrices = decayed_names("matrices")
    assert len(matrices) == 2 + 8 * 4
    assert {"embedding.tokens.weight", "embedding.positions.weight"} <= matrices
    assert not any(n.endswith("bias") or "norm" in n for n in matrices)
    assert matrices == decayed_names("matrices", "baseline")
    assert matrices - decayed_names("linear") == {
        "embedding.tokens.weight",
        "embedding.positions.weight",
    }
