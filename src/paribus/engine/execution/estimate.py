"""Cost of a study on this machine, from one measured step."""

from __future__ import annotations

import math
from pathlib import Path

from paribus.engine.cost import Cost, Rate, is_large, study_cost
from paribus.engine.execution.start import read_data, settled_budgets
from paribus.engine.execution.trial.stacks import default_size, plan_stacks
from paribus.engine.machine.measurements import StepTime
from paribus.engine.machine.signs import is_surely_cpu
from paribus.engine.setting import is_open, with_precision
from paribus.errors import require_positive
from paribus.runs.executors import Backend, find_backend
from paribus.runs.queue import Task
from paribus.runs.run import Device, ask
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
    place = {"device": device, "backend": find_backend(backend)}
    [machine] = ask(study, Path(), [Task("machine", "machine", "at the start", "")], **place)
    if is_open(study):
        study = with_precision(study, machine["precision"])
    n_workers = workers or max(machine["workers"] // (study.resources.devices_per_trial or 1), 1)
    size = stack or default_size(study, machine["device"], machine["devices"])
    size = max(map(len, plan_stacks(study, size)))
    if size > 1:
        arguments = {"arm": study.baseline, "stack": size}
        arguments |= {"workers": math.ceil(n_workers / machine["devices"])}
        task = Task("memory", "memory", "while its memory was measured", "", arguments)
        size = ask(study, Path(), [task], **place)[0]["stack"]
    n_workers = min(n_workers, len(plan_stacks(study, size)))
    # All workers at once, because they share caches and memory, as in the study.
    arguments = {"arm": study.baseline, "stack": size}
    tasks = [
        Task(f"step.{k}", "step", "while a step was timed", "", arguments) for k in range(n_workers)
    ]
    steps = [StepTime(**step) for step in ask(study, Path(), tasks, workers=n_workers, **place)]
    slowest = max(steps, key=lambda step: step.seconds)
    baseline = cost.arms[study.baseline]
    flops = slowest.stack * baseline.flops / setting.budget_iterations
    rate = Rate(flops / slowest.seconds, n_workers, step=slowest)
    return study_cost(study, vocabularies, rate=rate, price=price)
