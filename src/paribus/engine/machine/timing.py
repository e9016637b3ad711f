"""What is timed of a machine at work: seconds, and where they go.

A GPU works on while Python goes ahead; whatever is timed here is waited for, or marked by events
that the device itself passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import torch

from paribus.engine.training import PHASES

Result = TypeVar("Result")


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def timed(action: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """What `action` gives, and the seconds that it took."""
    wait(device)
    began = time.perf_counter()
    result = action()
    wait(device)
    return result, time.perf_counter() - began


class PhaseClock:
    """Adds up the seconds of a stack's phases: its `begin` is what `Trainer.on_phase` is set to.

    From one call to the next all time belongs to the phase begun, so that phases sum to the whole.
    On CUDA that is the device's time: what the host does meanwhile is charged to a phase only
    where the device waits for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str, Any]] = []

    def begin(self, phase: str) -> None:
        """End the phase before, and begin this one."""
        self._marks.append((phase, self._now()))

    def seconds(self) -> dict[str, float]:
        """{phase: seconds} up to the last call of `begin`."""
        wait(self._device)
        totals: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        for (phase, since), (_, until) in pairwise(self._marks):
            totals[phase] += self._between(since, until)
        return totals

    def _now(self) -> Any:
        if self._device.type != "cuda":
            wait(self._device)
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _between(self, since: Any, until: Any) -> float:
        if self._device.type != "cuda":
            return until - since
        return since.elapsed_time(until) / 1e3  # it gives milliseconds
