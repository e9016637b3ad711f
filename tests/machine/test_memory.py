"""The most that tensors hold at once, counted by hand."""

import ctypes
import resource
import sys

import pytest
import torch

from paribus.engine.machine.memory import free_unused, keep_freed, most_held

CPU, MIB = torch.device("cpu"), 2**20
PR_SET_THP_DISABLE = 41  # of linux/prctl.h


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


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
def test_freed_memory_is_taken_again_without_the_system(request):
    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.zeros(24 * MIB, dtype=torch.uint8)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    # A huge page is one fault, and whether there are any is up to the machine.
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    request.addfinalizer(lambda: prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0))
    keep_freed()
    faults()
    assert faults() < 100  # of 24,576 pages
    free_unused(CPU)
    assert faults() > 1000
