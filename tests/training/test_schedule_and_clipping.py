"""Learning rates by hand; clipping against PyTorch's own; what is decayed."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from paribus.engine.model import build_model, parameter_uses
from paribus.engine.setting.setting import Schedule
from paribus.engine.training import clip_factors, is_decayed, learning_rate
from paribus.study import load_study


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
