"""A trial over several devices: the child of a worker is rank 0 and starts the other ranks.

If a rank dies, the child ends with one line on its standard error, and the worker starts the trial
again from its last checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from paribus.errors import ParibusError
from paribus.runs.processes import Leaving, Left, tie_to
from paribus.runs.queue import Queue, Task
from paribus.study import Study

if TYPE_CHECKING:
    import torch

    from paribus.engine.training.ranks import Ranks
    from paribus.runs.worker import Context

RANKS_PER_CORE = 4
POLL_SECONDS, GRACE_SECONDS = 0.2, 1.0
REFUSED = 2  # exit code of a child whose failure was reported


def require_devices(device: torch.device, size: int) -> None:
    """Raise ParibusError if this machine has fewer than `size` devices like `device`."""
    from paribus.engine.machine.environment import count_devices

    if device.type == "mps":
        raise ParibusError(
            f"resources.devices_per_trial = {size} needs GPUs or CPUs, and this machine has MPS; "
            "use --device cpu, or remove the key"
        )
    is_gpu = device.type == "cuda"
    most = count_devices(device) if is_gpu else RANKS_PER_CORE * (os.cpu_count() or 1)
    if size > most:
        what = "GPUs" if is_gpu else f"processes ({RANKS_PER_CORE} for each core)"
        raise ParibusError(
            f"resources.devices_per_trial = {size}, and {platform.node()} has room for {most} "
            f"{what}; set resources.devices_per_trial to {most} or less"
        )


@contextmanager
def joined(study: Study, task: Task, context: Context, size: int) -> Iterator[Ranks]:
    """Start ranks 1 to `size` - 1 for a task, and be rank 0 in the body."""
    from torch._C._distributed_c10d import TCPStore

    from paribus.engine.execution.tasks import device_of
    from paribus.engine.training.ranks import PATIENCE, Ranks

    device = device_of(context, study)
    require_devices(device, size)
    store = TCPStore("127.0.0.1", 0, size, is_master=True, timeout=PATIENCE, wait_for_workers=False)
    place = (context.queue.path, context.worker, context.slot)
    helpers = [
        multiprocessing.get_context("spawn").Process(
            target=be_rank, args=(rank, size, store.port, task, *place, os.getpid())
        )
        for rank in range(1, size)
    ]
    for helper in helpers:
        helper.start()
    over = threading.Event()
    threading.Thread(target=_watch, args=(helpers, over, context.queue), daemon=True).start()
    try:
        yield Ranks.meet(0, size, device, store)
        Ranks.part()
    except BaseException as error:
        failure = None
        if isinstance(error, Exception) and not isinstance(error, ParibusError):
            failure = _machine_failure(error, 0, size)
            if failure is None:  # if another rank has died, the watch ends this process
                time.sleep(2 * GRACE_SECONDS)
        for helper in helpers:
            helper.kill()
        if failure is not None:
            raise ParibusError(failure) from error
        raise
    finally:
        over.set()
        for helper in helpers:
            helper.join()


def _watch(helpers: list[SpawnProcess], over: threading.Event, queue: Queue) -> None:
    """End this process if a helper fails: rank 0 may wait for it forever."""
    while not over.wait(POLL_SECONDS):
        failed = [(rank, helper) for rank, helper in enumerate(helpers, 1) if helper.exitcode]
        if not failed or over.wait(GRACE_SECONDS):  # rank 0 reports what all ranks raise
            continue
        if queue.failure() is not None:
            os._exit(REFUSED)
        # A rank that was killed takes others with it, which end with an error.
        rank, code = min(
            ((rank, helper.exitcode or 0) for rank, helper in failed),
            key=lambda failure: failure[1] >= 0,
        )
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        print(f"rank {rank} of {len(helpers) + 1} died with {how}", file=sys.stderr, flush=True)
        os._exit(1)


def be_rank(
    rank: int,
    size: int,
    port: int,
    task: Task,
    path: Path,
    worker: str,
    slot: int,
    parent: int,
) -> None:
    """Train a task as a rank other than 0; does not return."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR2"):  # rank 0 decides when to leave
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    tie_to(parent)
    queue, code = Queue(path), 1
    try:
        _train(rank, size, port, task, queue, worker, slot)
        code = 0
    except Left:
        code = 0
    except Exception as error:
        message = str(error) if isinstance(error, ParibusError) else None
        if message := message or _machine_failure(error, rank, size):
            queue.fail(message)
        else:
            traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def _train(
    rank: int, size: int, port: int, task: Task, queue: Queue, worker: str, slot: int
) -> None:
    from torch._C._distributed_c10d import TCPStore

    from paribus.engine.execution.tasks import device_of, train_stack
    from paribus.engine.training.ranks import PATIENCE, Ranks
    from paribus.runs.advance import study_of
    from paribus.runs.worker import Context
    from paribus.search_path import add_own_folder

    context = Context(queue, queue.read_order(), worker, slot, Leaving())
    for folder in context.order.search:
        add_own_folder(Path(folder))
    study = study_of(context.order, Path(task.home))
    device = device_of(context, study, rank)
    store = TCPStore("127.0.0.1", port, size, timeout=PATIENCE)
    train_stack(study, task, context, Ranks.meet(rank, size, device, store))
    Ranks.part()


def _machine_failure(error: Exception, rank: int, size: int) -> str | None:
    from paribus.engine.machine.environment import LESS_OF_A_RANK, machine_failure

    failure = machine_failure(error, LESS_OF_A_RANK)
    return failure and f"rank {rank} of {size} (on {platform.node()}): {failure}"
