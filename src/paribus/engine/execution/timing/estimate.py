"""An estimate of what a study will cost on this machine, from a short measured warm-up."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paribus.engine.execution.backends import Backend, find_backend
from paribus.engine.execution.start import (
    is_emulated,
    read_data,
    settle_precision,
)
from paribus.engine.execution.timing.budgets import settled_budgets
from paribus.engine.execution.trial.stacks import default_size, plan_stacks
from paribus.engine.execution.workers.messages import CountModel, MeasureMemory, MeasureStep
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Device
from paribus.engine.machine.measurements import ModelSize, StepCost
from paribus.engine.machine.on_paper import last_end
from paribus.errors import require_positive
from paribus.metric import Metric
from paribus.study import Study, tuning_study
from paribus.study.trainer import Trial


@dataclass(frozen=True)
class Estimate:
    """Cost of a study.

    Attributes:
        parameters: trainable parameters by arm.
        flops: floating-point operations of one trial's training, by arm.
        tokens: training tokens of one trial, by arm.
        iterations: steps of one trial, by arm; where budgets match in bytes, as settled.
        bytes_per_token: UTF-8 bytes that a training token is of, by arm.
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
        emulated: whether the device has to emulate the products of an arm, which is slow.
        seconds: training and evaluation of all trials, without those that tune.
        tuning_trials: trials that tune first, over the grid as it begins.
        tuning_tokens: their training tokens.
        tuning_seconds: their training and evaluation.
        metrics: what the study compares, as it is declared.
    """

    parameters: dict[str, int]
    flops: dict[str, int]
    tokens: dict[str, int]
    iterations: dict[str, int]
    bytes_per_token: dict[str, float]
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
    tuning_trials: int = 0
    tuning_tokens: int = 0
    tuning_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        about = {name: metric.about for name, metric in self.metrics.items()}
        return asdict(replace(self, metrics={})) | {"metrics": about}


def estimate(
    study: Study,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stack: int | None = None,
    backend: str | Backend = "local",
) -> Estimate:
    """Time a few steps on all workers at once, and add up. Nothing is written.

    `workers`, `device`, `stack` and `backend` are those of `run`, with its defaults: as many
    workers as there are cores or GPUs, and on a GPU all trials side by side that its memory holds.
    """
    require_positive(workers=workers, stack=stack)
    backend = find_backend(backend)
    study = settled_budgets(study, device=device, backend=backend)
    datasets = read_data(study)
    with Pool(study, Path(), device=device, backend=backend) as pool:
        first = pool.start()
        ready = pool.ready(first)
        metrics = pool.metrics(first)
        study = settle_precision(study, ready, pool)
        sizes = {arm: _ask_size(pool, study, arm) for arm in study.arms}
        n_workers = pool.n_workers(workers, ready)
        size = stack or default_size(study, ready.device, ready.devices)
        size = max(map(len, plan_stacks(study, size)))
        if not any(of.too_large for of in sizes.values()):
            size = _fitting(pool, study, size, math.ceil(n_workers / ready.devices))
        stacks = plan_stacks(study, size)
        size, n_workers = max(map(len, stacks)), min(n_workers, len(stacks))
        for worker in [pool.start() for _ in range(n_workers - pool.at_once)]:
            pool.ready(worker)
        # All at once: cores share caches and memory, and a study will use them all.
        costs = pool.ask_at_once(
            MeasureStep(study.baseline, size),
            n_workers,
            "while it was timed; state fewer --workers",
        )
    return Estimate(
        parameters={arm: of.parameters for arm, of in sizes.items()},
        flops={arm: of.flops_per_token * study.setting(arm).tokens for arm, of in sizes.items()},
        tokens={arm: study.setting(arm).tokens for arm in study.arms},
        iterations={arm: study.setting(arm).iterations for arm in study.arms},
        bytes_per_token={
            arm: datasets[study.setting(arm).data].bytes_per_token for arm in study.arms
        },
        step_seconds=max(cost.step_seconds for cost in costs),
        evaluation_seconds=max(cost.evaluation_seconds for cost in costs),
        memory_bytes=max(cost.memory_bytes for cost in costs),
        measured=all(cost.measured for cost in costs),
        stack=size,
        workers=n_workers,
        device=ready.device,
        precision=study.training.precision,
        emulated=is_emulated(study, ready),
        seconds=_seconds(study, stacks, costs),
        metrics=metrics,
        **_tuning(study, size, costs),
    )


def _tuning(study: Study, size: int, costs: list[StepCost]) -> dict[str, Any]:
    """Return what the trials that tune cost, as `Estimate` has it; they are stacked as the others
    are.
    """
    if study.tuning is None:
        return {}
    tuning = tuning_study(study, study.tuning.candidates)
    times = len(study.seeds) if study.tunes_anew else 1
    return {
        "tuning_trials": times * len(tuning.trials),
        "tuning_tokens": times * sum(tuning.setting(arm).tokens for arm, _ in tuning.trials),
        "tuning_seconds": times * _seconds(tuning, plan_stacks(tuning, size), costs),
    }


def _ask_size(pool: Pool, study: Study, arm: str) -> ModelSize:
    worker = pool.worker_for(study.setting(arm))
    return pool.ask(worker, CountModel(arm), "while its model was counted")


def _fitting(pool: Pool, study: Study, size: int, sharing: int) -> int:
    """`size`, or as many replicas as the memory of a device holds that `sharing` workers share."""
    if size == 1:
        return 1
    worker = pool.worker_for(study.setting(study.baseline))
    task = MeasureMemory(study.baseline, size, sharing)
    return pool.ask(worker, task, "while its memory was measured").stack


def _seconds(study: Study, stacks: list[list[Trial]], costs: list[StepCost]) -> float:
    """When all trials are trained and evaluated, by a worker for each of `costs`.

    The slowest counts. Of a smaller stack a step takes less.
    """
    step = max(cost.step_seconds for cost in costs)
    evaluation = max(cost.evaluation_seconds for cost in costs)
    size = max(map(len, stacks))
    each = [
        len(trials) * (study.setting(trials[0][0]).budget_iterations * step / size + evaluation)
        for trials in stacks
    ]
    return last_end(each, len(costs))
