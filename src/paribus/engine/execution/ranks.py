"""A trial over several devices: a child of the worker starts one process per device, and waits.

If a rank dies, the child ends with one line on its standard error, and the worker starts the trial
again from its last checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING

from torch._C._distributed_c10d import TCPStore

from paribus.engine.machine.environment import (
    LESS_OF_A_RANK,
    choose_device,
    count_devices,
    machine_failure,
)
from paribus.engine.training.ranks import PATIENCE, Ranks
from paribus.errors import ParibusError
from paribus.runs.advance import study_of
from paribus.runs.processes import IGNORED, STOPPING, Left, ending, tie_to
from paribus.runs.queue import Context, Task
from paribus.runs.worker import DIED, DONE, LEFT, Reporting
from paribus.study.custom_code import add_own_folder

if TYPE_CHECKING:
    import torch

RANKS_PER_CORE = 4
POLL_SECONDS, GRACE_SECONDS = 0.2, 5.0


def require_devices(device: torch.device, size: int) -> None:
    """Raise ParibusError if this machine has fewer than `size` devices like `device`."""
    is_cpu = device.type == "cpu"
    limit = RANKS_PER_CORE * (os.cpu_count() or 1) if is_cpu else count_devices(device)
    if size > limit:
        unit = f"processes ({RANKS_PER_CORE} for each core)" if is_cpu else "GPUs"
        raise ParibusError(
            f"resources.devices_per_trial = {size}, and {platform.node()} has room for {limit} "
            f"{unit}; set resources.devices_per_trial to {limit} or less"
        )


def train_over(
    size: int,
    task: Task,
    context: Context,
    device_of: Callable[..., torch.device],
    train: Callable[..., None],
) -> None:
    """Train a task with `size` processes, each on its own device.

    Raises Left if the processes were asked to leave before the end.
    """
    require_devices(choose_device(context.order.settings["device"]), size)
    store = TCPStore("127.0.0.1", 0, size, is_master=True, timeout=PATIENCE, wait_for_workers=False)
    place = (size, store.port, task, context, os.getpid(), device_of, train)
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
        # A rank that was killed, with a negative code, takes others with it, which end with errors.
        code, number = min(failed)
        print(f"rank {number} of {size} died with {ending(code)}", file=sys.stderr, flush=True)
        os._exit(DIED)
    if ranks[0].exitcode == LEFT:
        raise Left


def be_rank(
    rank: int,
    size: int,
    port: int,
    task: Task,
    context: Context,
    parent: int,
    device_of: Callable[..., torch.device],
    train: Callable[..., None],
) -> None:
    """Train a task as one rank; does not return."""
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
        train(study, task, context, ranks)
        Ranks.part()
        code = DONE
    except Left:
        code = LEFT
    except ParibusError as error:
        context.queue.fail(str(error))
    except Exception as error:
        if failure := machine_failure(error, LESS_OF_A_RANK):
            context.queue.fail(f"rank {rank} of {size} (on {platform.node()}): {failure}")
        else:
            traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)
