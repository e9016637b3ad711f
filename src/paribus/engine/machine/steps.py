"""Construction of trainers on a local device, and timing of their steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

from paribus.engine.data import Dataset
from paribus.engine.probes import study_probes
from paribus.engine.setting import Setting
from paribus.engine.training import GRAPHED_STEPS, Trainer
from paribus.study import Study

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks

Result = TypeVar("Result")
TIMED_STEPS = 3


def build_stack(
    study: Study,
    setting: Setting | Sequence[Setting],
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    *,
    strict: bool = True,
    graphs: bool = True,
    ranks: Ranks | None = None,
) -> Trainer:
    """Build a trainer for trials that are trained together, with the study's probes.

    Args:
        study: study that sets probes, resources and the folder of custom code.
        setting: setting of all replicas, or one per replica.
        seeds: seed of each replica.
        dataset: training and validation text.
        device: device to train on.
        strict: see `Trainer`.
        graphs: see `Trainer`.
        ranks: process group that runs one trial on several devices, or None.
    """
    return Trainer(
        setting,
        seeds,
        dataset,
        folder=study.folder,
        device=device,
        probes=study_probes(study),
        strict=strict,
        graphs=graphs,
        ranks=ranks,
        devices=study.resources.devices,
        checkpointing=study.resources.checkpoint_activations,
    )


def wait(device: torch.device) -> None:
    """Wait until a GPU has finished all queued work; do nothing on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def timed(action: Callable[[], Result], device: torch.device) -> tuple[Result, float]:
    """Run `action`, and return its result and its duration in seconds."""
    wait(device)
    began = time.perf_counter()
    result = action()
    wait(device)
    return result, time.perf_counter() - began


def warm_up(action: Callable[[], object], device: torch.device) -> None:
    """Run `action` without timing it.

    On a GPU, it is repeated until a training step has been captured and replayed as a CUDA graph.
    """
    for _ in range(GRAPHED_STEPS if device.type == "cuda" else 1):
        action()


def step_time(
    study: Study, arm: str, dataset: Dataset, device: torch.device, stack_size: int
) -> float:
    """Return the median duration in seconds of a training step in `arm`, after a warmup.

    The step trains `stack_size` replicas with the largest batch size.
    """
    stack = build_stack(study, study.setting(arm), range(stack_size), dataset, device)
    stack.t = stack.setting.iterations - 1  # the batch is at its largest
    warm_up(stack.step, device)
    seconds = [timed(stack.step, device)[1] for _ in range(TIMED_STEPS)]
    return statistics.median(seconds)
