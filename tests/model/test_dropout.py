"""Dropout by key: the right share, the right scale, the same mask for the same key."""

import pytest
import torch

from paribus.engine.model import Dropout


def masked(p: float, key: int, n: int = 200_000) -> torch.Tensor:
    layer = Dropout(p).train()
    layer.key.fill_(key)
    return layer(torch.ones(n))


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_the_share_dropped_and_the_scale_of_the_rest(p):
    out = masked(p, key=1234567)
    dropped = (out == 0).double().mean().item()
    assert dropped == pytest.approx(p, abs=4 * (p * (1 - p) / len(out)) ** 0.5)
    assert out[out != 0].unique().item() == pytest.approx(1 / (1 - p))


def test_masks_follow_the_key_alone():
    assert torch.equal(masked(0.5, 7), masked(0.5, 7))
    agreement = (masked(0.5, 7) == masked(0.5, 8)).double().mean().item()
    assert agreement == pytest.approx(0.5, abs=0.01)


def test_a_stack_has_each_replica_s_own_mask():
    layer = Dropout(0.5).train()
    keys = torch.tensor([3, 4])

    def one(key: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"key": key}, (x,))

    stacked = torch.func.vmap(one)(keys, torch.ones(2, 1000))
    assert torch.equal(stacked[0], masked(0.5, 3, 1000))
    assert torch.equal(stacked[1], masked(0.5, 4, 1000))
