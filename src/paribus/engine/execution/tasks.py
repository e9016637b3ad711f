"""What a child process of the engine does for a task; see `runner.py` for when."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.engine.check import check_arm, repeat_steps
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.execution.evaluate import answer_tasks
from paribus.engine.execution.start import described, read_data
from paribus.engine.execution.throughput import time_in_turn
from paribus.engine.execution.trial.heldout_part import evaluate_heldout_part
from paribus.engine.execution.trial.record import finite
from paribus.engine.execution.trial.trial import StackTask, run_stack
from paribus.engine.machine.clock import step_time
from paribus.engine.machine.environment import (
    choose_device,
    count_devices,
    machine_failure,
    native_precision,
    prepare,
)
from paribus.engine.machine.memory import largest_stack
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.store import DATA
from paribus.runs.advance import study_of
from paribus.runs.processes import Left
from paribus.runs.queue import Task
from paribus.study import Study, parse_study
from paribus.study.importing import same_settings

if TYPE_CHECKING:
    import torch

    from paribus.engine.training.ranks import Ranks
    from paribus.runs.worker import Context


def devices_per_trial(study: Study) -> int:
    """Return how many devices train one trial of a study."""
    return study.resources.devices_per_trial or 1


def device_of(context: Context, study: Study, rank: int = 0) -> torch.device:
    """Return the device of a child process, ready for use; each slot of a worker has its own."""
    size = devices_per_trial(study)
    device = choose_device(context.order.settings["device"], context.slot * size + rank)
    prepare(device)
    return device


def machine_of(context: Context) -> dict[str, Any]:
    """Return the kind of device of this machine, how many there are, the precision that "auto"
    means, and how many trials are trained at the same time by default."""
    device = choose_device(context.order.settings["device"], 0)
    devices = count_devices(device)
    return {
        "device": device.type,
        "devices": devices,
        "precision": native_precision(device),
        "workers": devices if device.type != "cpu" else count_cores(),
    }


def count_cores() -> int:
    """Return how many cores of this machine this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def execute(task: Task, context: Context) -> Any:
    """Do a task, and return its answer; None if its results are in the results folder."""
    try:
        return _execute(task, context)
    except ParibusError:
        raise
    except Exception as error:
        if failure := machine_failure(error):
            raise ParibusError(failure) from error
        raise


def _execute(task: Task, context: Context) -> Any:
    arguments = task.arguments
    if task.kind == "machine":
        return machine_of(context)
    study = _study(task, context)
    results = ResultsFolder(Path(task.home or context.order.results))
    device, graphs = device_of(context, study), not context.order.settings["eager"]
    if task.kind == "describe":
        results.seal(DATA, described(study, read_data(study)))
        return None
    if task.kind == "time":
        datasets = {arm: read_text(study, study.setting(arm).data) for arm in study.arms}
        trials = [(arm, seed) for arm, seed in arguments["timed"]]
        time_in_turn(study, results, datasets, device, trials, graphs=graphs)
        return None
    if task.kind == "train":
        train(study, task, context)
        return None
    arm = arguments["arm"]
    dataset = read_text(study, study.setting(arm).data)
    match task.kind:
        case "check":
            about = {"graphs": graphs, "by_shapes": arguments["by_shapes"]}
            return check_arm(study, arm, dataset, device, arguments["stack"], **about)
        case "memory":
            stack, workers = arguments["stack"], arguments["workers"]
            return asdict(largest_stack(study, arm, dataset, device, stack, workers, graphs=graphs))
        case "step":
            return asdict(step_time(study, arm, dataset, device, arguments["stack"]))
        case "heldout":
            evaluate_heldout_part(study, results, dataset, device, (arm, arguments["seed"]))
            return None
        case "answer":
            answer_tasks(study, results, dataset, device, arguments)
            return True
        case "again" if devices_per_trial(study) > 1:
            # The order in which gradients are added depends on the number of devices.
            return {"elsewhere": ["way of training: one trial over several devices"]}
        case "again":
            trial = results.trial(arm, arguments["seed"])
            again = repeat_steps(study, trial, dataset, device, arguments["steps"], graphs=graphs)
            return dict(zip(("elsewhere", "differs_at", "differs"), again, strict=True))
    raise ValueError(f"nobody does {task}")


def _study(task: Task, context: Context) -> Study:
    """Return the study of a task: its own, that of its results folder, or that of the run."""
    if "study" in task.arguments:
        return parse_study(task.arguments["study"], folder=Path(context.order.folder))
    if task.home and context.order.stages:
        return study_of(context.order, Path(task.home))
    return study_of(context.order)


def read_text(study: Study, data: Data) -> Dataset:
    """Return the text of `data`.

    Raises ParibusError if custom code that reads it changes how all of a process computes.
    """
    with same_settings(f"reading {', '.join(data.own.values())}"):
        return load_dataset(data, study.folder)


def train(study: Study, task: Task, context: Context) -> None:
    """Train the trials of a task; over several devices, as rank 0 of the processes it starts.

    Raises Left if the process was asked to leave before the end.
    """
    from paribus.engine.execution.ranks import joined

    size = devices_per_trial(study)
    if size == 1:
        train_stack(study, task, context)
        return
    with joined(study, task, context, size) as ranks:
        train_stack(study, task, context, ranks)


def train_stack(study: Study, task: Task, context: Context, ranks: Ranks | None = None) -> None:
    """Train the trials of a task, or with `ranks` this rank's rows of its only trial."""
    rank = 0 if ranks is None else ranks.rank
    trials, settings = task.trials, context.order.settings
    stack = StackTask(
        study,
        tuple(trials),
        ResultsFolder(Path(task.home)),
        device_of(context, study, rank),
        settings["checkpoint_seconds"],
        not settings["eager"],
        ranks,
        owner=context.worker,
    )

    def report(event: str, **content: Any) -> None:
        if ranks is None or ranks.is_first:
            context.report(event, trials=trials, **content)

    def on_resume(t: int, words: str) -> None:
        report("resumed", t=t)
        if words:
            context.report("warning", words=words)

    is_done = run_stack(
        stack,
        read_text(study, study.setting(task.trials[0][0]).data),
        on_progress=lambda t, losses: report("trained", t=t, losses=finite(losses)),
        on_resume=on_resume,
        leaving=context.leaving,
    )
    if not is_done:
        raise Left
    report("finished")
