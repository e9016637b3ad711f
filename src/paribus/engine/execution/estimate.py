"""Cost of a study on this machine, from one measured step."""

from __future__ import annotations

import math
from pathlib import Path

from paribus.engine.cost import Cost, Rate, is_large, study_cost
from paribus.engine.execution.backends import Backend, find_backend
from paribus.engine.execution.budgets import settled_budgets
from paribus.engine.execution.start import read_data, settle_precision
from paribus.engine.execution.trial.stacks import default_size, plan_stacks
from paribus.engine.execution.workers.messages import MeasureMemory, MeasureStep
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Device, is_surely_cpu
from paribus.errors import require_positive
from paribus.study import Study


def estimate(
    study: Study,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stack: int | None = None,
    backend: str | Backend = "local",
    price: float | None = None,
) -> Cost:
    """Measure a step of the baseline with all workers busy, and add up the cost of `study`.

    `workers`, `device`, `stack` and `backend` are those of `run`, with its defaults; `price` is of
    a worker's device for an hour. Nothing is written. A model of which a step on this CPU would
    take long is not measured, and its cost has no time.
    """
    require_positive(workers=workers, stack=stack)
    study = settled_budgets(study)
    datasets = read_data(study)
    vocabularies = {arm: datasets[study.setting(arm).data].vocab_size for arm in study.arms}
    cost, setting = study_cost(study, vocabularies), study.setting(study.baseline)
    windows = setting.training.largest_batch
    if is_surely_cpu(device) and is_large(setting, vocabularies[study.baseline], windows):
        return cost
    with Pool(study, Path(), device=device, backend=find_backend(backend)) as pool:
        ready = pool.ready(pool.start())
        study = settle_precision(study, ready, pool)
        n_workers = pool.n_workers(workers, ready)
        size = stack or default_size(study, ready.device, ready.devices)
        size = max(map(len, plan_stacks(study, size)))
        if size > 1:
            worker, sharing = pool.worker_for(setting), math.ceil(n_workers / ready.devices)
            task = MeasureMemory(study.baseline, size, sharing)
            size = pool.ask(worker, task, "while its memory was measured").stack
        n_workers = min(n_workers, len(plan_stacks(study, size)))
        for worker in [pool.start() for _ in range(n_workers - pool.at_once)]:
            pool.ready(worker)
        # All workers at once, because they share caches and memory, as in the study.
        steps = pool.ask_at_once(
            MeasureStep(study.baseline, size), n_workers, "while a step was timed"
        )
    slowest = max(steps, key=lambda step: step.seconds)
    baseline = cost.arms[study.baseline]
    flops = slowest.stack * baseline.flops / setting.budget_iterations
    rate = Rate(flops / slowest.seconds, n_workers, step=slowest)
    return study_cost(study, vocabularies, rate=rate, price=price)
