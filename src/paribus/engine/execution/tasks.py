"""Tasks of the engine that run in child processes; `runner.py` schedules them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.digests import plain
from paribus.engine.check import check_arm, repeat_steps
from paribus.engine.cost import is_large
from paribus.engine.data import load_dataset
from paribus.engine.execution.start import described, read_data
from paribus.engine.execution.throughput import time_in_turn
from paribus.engine.execution.trial.evaluation import (
    answer_request,
    evaluate_heldout_part,
)
from paribus.engine.execution.trial.trial import Stack
from paribus.engine.machine import environment
from paribus.engine.machine.steps import step_time
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.store import DATA
from paribus.runs.advance import study_of
from paribus.runs.queue import Task
from paribus.study import Study, parse_study

if TYPE_CHECKING:
    import torch

    from paribus.engine.training.ranks import Ranks
    from paribus.runs.queue import Context

DRY_ROWS = 2 * 6  # windows of a dry run: two in each of six passes


def device_of(context: Context, study: Study, rank: int = 0) -> torch.device:
    """Return the device of a child process, ready for use; each slot of a worker has its own."""
    size = study.resources.devices
    device = environment.choose_device(context.order.settings["device"], context.slot * size + rank)
    environment.prepare(device)
    return device


def machine_of(context: Context) -> dict[str, Any]:
    """Return the device type of this machine, the number of devices, the free bytes of a GPU, the
    meaning of precision "auto", and the default number of concurrent trials."""
    device = environment.choose_device(context.order.settings["device"])
    return {
        "device": device.type,
        "devices": environment.count_devices(device),
        "memory": environment.free_memory(device),
        "precision": environment.native_precision(device),
        "workers": default_workers(device),
    }


def default_workers(device: torch.device) -> int:
    """Return the number of concurrent trials: one per GPU, or per core of a CPU."""
    return count_cores() if device.type == "cpu" else environment.count_devices(device)


def count_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def execute(task: Task, context: Context) -> Any:
    """Run a task and return its answer; None if the answer is in the results folder."""
    try:
        return _execute(task, context)
    except ParibusError:
        raise
    except Exception as error:
        if failure := environment.machine_failure(error):
            raise ParibusError(failure) from error
        raise


def _execute(task: Task, context: Context) -> Any:
    kind, arguments, order = task.kind, task.arguments, context.order
    if kind == "machine":
        return machine_of(context)
    if "study" in arguments:
        study = parse_study(arguments["study"], folder=Path(order.folder))
    else:
        study = study_of(order, Path(task.home) if task.home and order.stages else None)
    if kind == "train" and study.resources.devices > 1:
        from paribus.engine.execution.ranks import train_over

        return train_over(study.resources.devices, task, context, device_of, train_stack)
    if kind == "train":
        return train_stack(study, task, context)
    results = ResultsFolder(Path(task.home or order.results))
    device, graphs = device_of(context, study), not order.settings["eager"]
    if kind == "describe":
        return results.seal(DATA, described(study, read_data(study)))
    if kind == "time":
        texts = read_data(study)
        datasets = {arm: texts[study.setting(arm).data] for arm in study.arms}
        trials = [(arm, seed) for arm, seed in arguments["timed"]]
        return time_in_turn(study, results, datasets, device, trials, graphs=graphs)
    arm, stack = arguments["arm"], arguments.get("stack", 1)
    dataset = load_dataset(study.setting(arm).data, study.folder)
    match kind:
        case "check":
            # A step of a large model on a CPU takes minutes.
            large = is_large(study.setting(arm), dataset.vocab_size, DRY_ROWS)
            by_shapes = large and device.type == "cpu"
            return check_arm(study, arm, dataset, device, stack, graphs=graphs, by_shapes=by_shapes)
        case "step":
            return step_time(study, arm, dataset, device, stack)
        case "heldout":
            trial = (arm, arguments["seed"])
            return evaluate_heldout_part(study, results, dataset, device, trial)
        case "answer":
            return answer_request(study, results, dataset, device, arguments)
        case "again" if study.resources.devices > 1:
            # The order in which gradients are added depends on the number of devices.
            return {"elsewhere": ["way of training: one trial over several devices"]}
        case "again":
            trial = results.trial(arm, arguments["seed"])
            again = repeat_steps(study, trial, dataset, device, arguments["steps"], graphs=graphs)
            return dict(zip(("elsewhere", "differs_at", "differs"), again, strict=True))
    raise ValueError(f"nobody does {task}")


def train_stack(study: Study, task: Task, context: Context, ranks: Ranks | None = None) -> None:
    """Train the trials of a task, or with `ranks` this rank's rows of its only trial."""
    trials, settings = task.trials, context.order.settings
    stack = Stack(
        study,
        trials,
        ResultsFolder(Path(task.home)),
        load_dataset(study.setting(trials[0][0]).data, study.folder),
        device_of(context, study, ranks.rank if ranks else 0),
        checkpoint_seconds=settings["checkpoint_seconds"],
        graphs=not settings["eager"],
        ranks=ranks,
        owner=context.worker,
    )

    def report(event: str, **content: Any) -> None:
        if ranks is None or ranks.is_first:
            context.report(event, **content)

    report("resumed", trials=trials, t=stack.trainer.t)
    if stack.warning:
        report("warning", words=stack.warning)
    stack.run(
        lambda t, loss: report("trained", trials=trials, t=t, losses=plain(loss)), context.leaving
    )
    report("finished", trials=trials)
