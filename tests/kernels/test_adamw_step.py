"""A step of AdamW by our own kernel, where PyTorch's tests of it do not look."""

from __future__ import annotations

import pytest
import torch

from paribus.engine.kernels import library
from paribus.engine.kernels.adamw_step import adamw_step, is_for

pytestmark = pytest.mark.skipif(
    library() is None, reason="no C++ compiler here: PyTorch's kernels are used"
)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_the_first_moment_is_pytorch_s_lerp_whatever_came_before(beta: float) -> None:
    """With a beta of 0 it is the gradient: of one before that was far larger nothing stays."""
    weights, gradients, square = torch.ones(3, 2, 21).unbind()
    mean = torch.full((2, 21), 1e9)
    wanted = mean.lerp(gradients, 1 - beta)
    rows = (weights.clone(), gradients, mean, square.clone())
    assert is_for(*rows)
    adamw_step(rows, torch.full((2, 1), 0.1), torch.tensor(1), (beta, 0.95), 1e-8)
    torch.testing.assert_close(mean, wanted, rtol=1e-6, atol=0)
