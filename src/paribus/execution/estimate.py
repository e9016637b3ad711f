"""What a study will cost on this machine, from a short measured warm-up."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from pathlib import Path

from paribus.data import load_dataset
from paribus.errors import ParibusError
from paribus.execution.device_precision import is_emulated, settle_precision
from paribus.execution.pool import Device, Pool, default_workers
from paribus.execution.stacks import default_size, plan_stacks
from paribus.metric import Metric
from paribus.study import Study, require_trust


@dataclass(frozen=True)
class Estimate:
    """Cost of a study.

    Attributes:
        parameters: trainable parameters by arm.
        flops: floating-point operations of one trial's training, by arm.
        tokens: training tokens of one trial, by arm.
        step_seconds: one step of a stack of the baseline with all workers busy.
        evaluation_seconds: held-out evaluation of one trial.
        memory_bytes: the largest resident memory of one worker.
        measured: False where the model is too large to try; `step_seconds` is then the least it can
            take, by the measured speed of matrix products, and `memory_bytes` that of weights,
            gradients and optimizer.
        stack: trials side by side in a worker.
        workers: worker processes.
        device: where it would run.
        precision: what the shared setting is trained with there; "auto" is settled.
        emulated: whether the device has to emulate bfloat16, which is slow.
        seconds: training and evaluation of all trials.
        metrics: what the study compares, as it is declared.
    """

    parameters: dict[str, int]
    flops: dict[str, int]
    tokens: dict[str, int]
    step_seconds: float
    evaluation_seconds: float
    memory_bytes: int
    measured: bool
    stack: int
    workers: int
    device: str
    precision: str
    emulated: bool
    seconds: float
    metrics: dict[str, Metric]


def estimate(
    study: Study,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stack: int | None = None,
) -> Estimate:
    """Time a few steps on all workers at once, and add up. Nothing is written.

    `workers`, `device` and `stack` are those of `run`, with its defaults: as many workers as there
    are cores or GPUs, and on a GPU all trials side by side that its memory holds.
    """
    for name, value in (("workers", workers), ("stack", stack)):
        if value is not None and value < 1:
            raise ParibusError(f"{name} = {value} must be at least 1")
    require_trust(study)  # a corpus may be custom code
    settings = {arm: study.setting(arm) for arm in study.arms}
    for data in dict.fromkeys(setting.data for setting in settings.values()):
        load_dataset(data, study.folder)
    with Pool(study, Path(), device=device, checkpoint_seconds=0) as pool:
        first = pool.start()
        ready = pool.answer(first)
        metrics = pool.metrics(first)
        kind = ready["device"]
        study = settle_precision(study, ready, pool)
        checked = {}
        for arm in study.arms:
            worker, task = pool.worker_for(study.setting(arm)), {"do": "size", "arm": arm}
            checked[arm] = pool.ask(worker, task, "sized", "while its model was counted")
        n_workers = workers or default_workers(kind, ready["devices"])
        size = stack or default_size(study, kind, ready["devices"])
        size = max(map(len, plan_stacks(study, size)))
        if not any(of["too_large"] for of in checked.values()):
            size = _fitting(pool, study, size, math.ceil(n_workers / ready["devices"]))
        stacks = plan_stacks(study, size)
        size, n_workers = max(map(len, stacks)), min(n_workers, len(stacks))
        for _ in range(n_workers - pool.at_once):
            pool.answer(pool.start())
        # All at once: cores share caches and memory, and a study will use them all.
        task = {"do": "measure", "arm": study.baseline, "stack": size}
        baseline, doing = study.setting(study.baseline), "while it was timed; state fewer --workers"
        measured = pool.ask_at_once(baseline, task, "measured", n_workers, doing)

    step_seconds = max(message["step_seconds"] for message in measured)
    evaluation_seconds = max(message["evaluation_seconds"] for message in measured)
    each = [
        # Of a smaller stack a step takes less.
        settings[trials[0][0]].iterations * step_seconds * len(trials) / size
        + evaluation_seconds * len(trials)
        for trials in stacks
    ]
    return Estimate(
        parameters={arm: checked[arm]["parameters"] for arm in study.arms},
        flops={arm: checked[arm]["flops_per_token"] * settings[arm].tokens for arm in study.arms},
        tokens={arm: settings[arm].tokens for arm in study.arms},
        step_seconds=step_seconds,
        evaluation_seconds=evaluation_seconds,
        memory_bytes=max(message["memory_bytes"] for message in measured),
        measured=all(message["measured"] for message in measured),
        stack=size,
        workers=n_workers,
        device=kind,
        precision=study.training.precision,
        emulated=is_emulated(study, ready),
        seconds=_together(each, n_workers),
        metrics=metrics,
    )


def _fitting(pool: Pool, study: Study, size: int, sharing: int) -> int:
    """`size`, or as many replicas as the memory of a device holds that `sharing` workers share."""
    if size == 1:
        return 1
    worker = pool.worker_for(study.setting(study.baseline))
    task = {"do": "fit", "arm": study.baseline, "stack": size, "workers": sharing}
    return pool.ask(worker, task, "fits", "while its memory was measured")["stack"]


def _together(seconds: list[float], n_workers: int) -> float:
    """When the last of the tasks is done, each taken by the first of the workers that is free."""
    free_at = [0.0] * n_workers
    for task in seconds:
        heapq.heapreplace(free_at, free_at[0] + task)
    return max(free_at)
