"""Operations of a training step, against PyTorch's own counter and by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paribus.model import build_model, training_flops_per_token, weight_shapes
from paribus.study import Study

V = 97


@pytest.mark.parametrize("arm", ["baseline", "layernorm"])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_pytorch_counts_the_same_products(
    small_study: Callable[..., Study], arm: str, n_layer: int
) -> None:
    setting = small_study({"model.n_layer": n_layer}).setting(arm)
    B, T = setting.training.batch_size, setting.data.seq_len
    model = build_model(setting, V, device="meta").train()
    tokens = torch.zeros(B, T, dtype=torch.int64, device="meta")
    # Attention written out: the counter knows no rule for the CPU's fused kernel.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
    assert counter.get_total_flops() == training_flops_per_token(setting, V) * B * T


def test_every_matrix_but_the_positions_is_multiplied(small_study: Callable[..., Study]) -> None:
    d, shapes = 16, weight_shapes(small_study().setting("layernorm"), V)
    assert sorted(shapes.values()) == sorted(
        [(V, d)] + 2 * [(3 * d, d), (d, d), (4 * d, d), (d, 4 * d)]
    )
