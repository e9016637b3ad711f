"""Engine tasks, which `runner.py` schedules and child processes run.

For a trial on several devices, a child process starts one process (rank) per device and waits for
all ranks. If a rank dies, the child prints one line to stderr and exits, and the worker restarts
the trial from its last checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import signal
import sys
import traceback
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from paribus.digests import plain
from paribus.engine.check import check_arm, repeat_steps
from paribus.engine.data import load_dataset
from paribus.engine.execution.start import read_data
from paribus.engine.execution.throughput import time_in_turn
from paribus.engine.execution.trial.record import answer_request, evaluate_heldout_part
from paribus.engine.execution.trial.trial import Stack
from paribus.engine.machine.environment import (
    choose_device,
    count_devices,
    machine_failure,
    native_precision,
    prepare,
)
from paribus.engine.machine.steps import step_time
from paribus.engine.training.ranks import PATIENCE, Ranks
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.runs.advance import study_of
from paribus.runs.processes import IGNORED, STOPPING, Left, ending, tie_to
from paribus.runs.queue import Context, Task
from paribus.runs.worker import DIED, DONE, LEFT, Reporting
from paribus.study import Study, parse_study
from paribus.study.custom_code import add_own_folder

POLL_SECONDS, GRACE_SECONDS = 0.2, 5.0


def device_of(context: Context, study: Study, rank: int = 0) -> torch.device:
    """Select and initialize the device of a child process, according to its worker slot."""
    size = study.resources.devices
    device = choose_device(context.order.settings["device"], context.slot * size + rank)
    prepare(device)
    return device


def train_over(size: int, task: Task, context: Context) -> None:
    """Run the trial in `task` with `size` processes, one per device.

    Raises Left if the processes were asked to stop early. Raises ParibusError if this machine has
    fewer than `size` GPUs, or if a rank fails.
    """
    device = choose_device(context.order.settings["device"])
    if device.type != "cpu" and size > (limit := count_devices(device)):
        raise ParibusError(
            f"resources.devices_per_trial = {size}, but {platform.node()} has only {limit} GPUs; "
            f"set resources.devices_per_trial to {limit} or less"
        )
    store = TCPStore("127.0.0.1", 0, size, is_master=True, timeout=PATIENCE, wait_for_workers=False)
    place = (size, store.port, task, context, os.getpid())
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=be_rank, args=(rank, *place)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    failed, is_told = list[tuple[int, int]](), False
    with context.leaving.hold():
        while ranks[0].exitcode is None and not failed:
            connection.wait(
                [rank.sentinel for rank in ranks if rank.exitcode is None], POLL_SECONDS
            )
            codes = [(rank.exitcode, number) for number, rank in enumerate(ranks)]
            failed = [(code, number) for code, number in codes if code and code != LEFT]
            if context.leaving.asked and not is_told:
                ranks[0].terminate()  # it decides for all
                is_told = True
        for rank in ranks:
            rank.join(0 if failed else GRACE_SECONDS)
            rank.kill()
            rank.join()
    if failure := context.queue.failure():
        raise ParibusError(failure["message"])
    if failed:
        # If a rank is killed (a negative code), the other ranks fail, too.
        code, number = min(failed)
        print(f"rank {number} of {size} died with {ending(code)}", file=sys.stderr, flush=True)
        os._exit(DIED)
    if ranks[0].exitcode == LEFT:
        raise Left


def be_rank(rank: int, size: int, port: int, task: Task, context: Context, parent: int) -> None:
    """Run the trial in `task` as rank `rank` of `size`, and exit the process."""
    for number in (*IGNORED, *STOPPING):
        signal.signal(number, signal.SIG_IGN)
    tie_to(parent)
    code = DIED
    try:
        for folder in context.order.search:
            add_own_folder(Path(folder))
        study = study_of(context.order, Path(task.home))
        store = TCPStore("127.0.0.1", port, size, timeout=PATIENCE)
        ranks = Ranks.meet(rank, size, device_of(context, study, rank), store)
        if ranks.is_first:
            context.leaving.listen()
            logging.getLogger("paribus").handlers[:] = [Reporting(context)]
        train_stack(study, task, context, ranks)
        Ranks.part()
        code = DONE
    except Left:
        code = LEFT
    except ParibusError as error:
        context.queue.fail(str(error), trials=task.trials)
    except Exception as error:
        if failure := machine_failure(error):
            words = f"rank {rank} of {size} (on {platform.node()}): {failure}"
            context.queue.fail(words, trials=task.trials)
        else:
            traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def machine_of(context: Context) -> dict[str, Any]:
    """Return the properties of this machine that a run depends on.

    `device` is the device type, `devices` the number of devices, `memory` the free GPU bytes or
    None, `precision` the resolution of "auto", and `workers` the default concurrency.
    """
    device = choose_device(context.order.settings["device"])
    return {
        "device": device.type,
        "devices": count_devices(device),
        "memory": torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None,
        "precision": native_precision(device),
        "workers": default_workers(device),
    }


def default_workers(device: torch.device) -> int:
    """Return the default number of concurrent trials, one per GPU or one per CPU core."""
    if device.type != "cpu":
        return count_devices(device)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def execute(task: Task, context: Context) -> Any:
    """Run a task and return its result, or None if the result is in the results folder."""
    try:
        return _execute(task, context)
    except ParibusError:
        raise
    except Exception as error:
        if failure := machine_failure(error):
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
    if kind == "train":
        size = study.resources.devices
        return train_over(size, task, context) if size > 1 else train_stack(study, task, context)
    results = ResultsFolder(Path(task.home or order.results))
    device, graphs = device_of(context, study), not order.settings["eager"]
    if kind == "time":
        texts = read_data(study)
        datasets = {arm: texts[study.setting(arm).data] for arm in study.arms}
        trials = [(arm, seed) for arm, seed in arguments["timed"]]
        return time_in_turn(study, results, datasets, device, trials, graphs=graphs)
    arm, stack = arguments["arm"], arguments.get("stack", 1)
    dataset = load_dataset(study.setting(arm).data, study.folder)
    match kind:
        case "check":
            return check_arm(study, arm, dataset, device, stack, graphs=graphs)
        case "step":
            return step_time(study, arm, dataset, device, stack)
        case "heldout":
            return evaluate_heldout_part(study, results, dataset, device, (arm, arguments["seed"]))
        case "answer":
            return answer_request(study, results, dataset, device, arguments)
        case _:  # "again"
            trial = results.trial(arm, arguments["seed"])
            return repeat_steps(study, trial, dataset, device, arguments["steps"], graphs=graphs)


def train_stack(study: Study, task: Task, context: Context, ranks: Ranks | None = None) -> None:
    """Run the trials in `task`, or this rank's share of a single trial if `ranks` is given."""
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
    stack.run(
        lambda t, loss: report("trained", trials=trials, t=t, losses=plain(loss)), context.leaving
    )
    report("finished", trials=trials)
