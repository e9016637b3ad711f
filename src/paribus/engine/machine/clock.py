"""Wall-clock times of computations on a device, which works on while Python goes ahead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

from paribus.engine.cost import StepTime
from paribus.engine.data import Dataset
from paribus.engine.machine.assembly import build_stack
from paribus.engine.training import GRAPHED_STEPS
from paribus.study import Study

Result = TypeVar("Result")
TIMED_STEPS = 3


def wait(device: torch.device) -> None:
    """Wait until a GPU has finished its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def timed(action: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """Return the result of `action`, and the seconds that it took."""
    wait(device)
    began = time.perf_counter()
    result = action()
    wait(device)
    return result, time.perf_counter() - began


def step_time(
    study: Study, arm: str, dataset: Dataset, device: torch.device, stack_size: int
) -> StepTime:
    """Measure a training step of `stack_size` replicas of `arm`, after it has warmed up."""
    stack = build_stack(study, study.setting(arm), range(stack_size), dataset, device)
    stack.go_to(stack.setting.iterations - 1)  # the batch is at its largest
    for _ in range(GRAPHED_STEPS if device.type == "cuda" else 1):
        stack.step()
    seconds = [timed(stack.step, device)[1] for _ in range(TIMED_STEPS)]
    return StepTime(float(np.median(seconds)), stack_size)
