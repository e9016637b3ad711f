"""The most that tensors hold at once, counted by hand."""

import torch

from paribus.engine.machine.memory import most_held

CPU, MIB = torch.device("cpu"), 2**20


def test_what_is_freed_is_not_held():
    def action() -> torch.Tensor:
        first = torch.empty(MIB, dtype=torch.uint8)
        kept = torch.empty(2 * MIB, dtype=torch.uint8)
        del first
        torch.empty(MIB, dtype=torch.uint8)
        return kept

    kept, held = most_held(action, CPU)
    assert held == 3 * MIB
    assert kept.numel() == 2 * MIB


def test_a_view_holds_nothing_of_its_own_and_a_backward_pass_its_gradients():
    def views() -> None:
        whole = torch.zeros(1024, 256)  # 1 MiB
        whole.view(-1)[7:].t().narrow(0, 0, 5)

    assert most_held(views, CPU)[1] == MIB
    weight = torch.nn.Parameter(torch.zeros(512, 512))  # 1 MiB, and as much for its gradient

    def backward() -> None:
        (weight * 2).sum().backward()

    _, held = most_held(backward, CPU)
    assert held is not None
    # The product is gone when its gradient comes; what the sum passes back is a view of one number.
    assert 2 * MIB <= held <= 2 * MIB + 1024
