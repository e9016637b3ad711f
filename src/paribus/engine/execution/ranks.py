"""A trial over several devices: the child of a worker is rank 0, and starts the other ranks.

A rank that dies ends the child, which leaves one line on its standard error; the worker begins the
trial again from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.errors import ParibusError
from paribus.runs.processes import Leaving, Left, tie_to
from paribus.runs.queue import Queue, Task
from paribus.search_path import add_own_folder
from paribus.study import Study

if TYPE_CHECKING:
    import torch

    from paribus.engine.training.ranks import Ranks
    from paribus.runs.worker import Context

RANKS_PER_CORE = 4
POLL_SECONDS, GRACE_SECONDS = 0.2, 1.0
REFUSED = 2  # exit code of a child that has said why


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
    about = {"timeout": PATIENCE, "wait_for_workers": False}
    store = TCPStore("127.0.0.1", 0, size, is_master=True, **about)
    order = {
        "queue": str(context.queue.path),
        "task": asdict(task),
        "worker": context.worker,
        "slot": context.slot,
        "size": size,
        "port": store.port,
    }
    helpers = [_start(order | {"rank": rank}) for rank in range(1, size)]
    over = threading.Event()
    threading.Thread(target=_watch, args=(helpers, over, context), daemon=True).start()
    try:
        yield Ranks.meet(0, size, device, store)
        Ranks.part()
    except BaseException as error:
        failure = None
        if isinstance(error, Exception) and not isinstance(error, ParibusError):
            failure = _of_the_machine(error, 0, size)
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
            helper.wait()


def _start(order: dict[str, Any]) -> subprocess.Popen[str]:
    # Own code is searched in folders that a forked worker knows by its search path alone.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    helper = subprocess.Popen(
        (sys.executable, "-P", "-m", __spec__.name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert helper.stdin is not None
    helper.stdin.write(json.dumps(order | {"parent": os.getpid()}))
    helper.stdin.close()
    return helper


def _watch(helpers: list[subprocess.Popen[str]], over: threading.Event, context: Context) -> None:
    """End this process if a helper fails: rank 0 may wait for it for ever."""
    while not over.wait(POLL_SECONDS):
        # A rank that was killed takes others with it, which then end with an error.
        failed = [(rank, one) for rank, one in enumerate(helpers, 1) if one.poll()]
        if not failed or over.wait(GRACE_SECONDS):  # what every rank raises, rank 0 reports
            continue
        rank, helper = min(failed, key=lambda item: item[1].returncode >= 0)
        assert helper.stdout is not None
        if words := helper.stdout.read():
            context.queue.fail(words.strip())
            os._exit(REFUSED)
        code = helper.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        print(f"rank {rank} of {len(helpers) + 1} died with {how}", file=sys.stderr, flush=True)
        os._exit(1)


def _of_the_machine(error: Exception, rank: int, size: int) -> str | None:
    from paribus.engine.machine.environment import LESS_OF_A_RANK, machine_failure

    failure = machine_failure(error, LESS_OF_A_RANK)
    return failure and f"rank {rank} of {size} (on {platform.node()}): {failure}"


def main() -> int:
    """Be a rank other than 0; returns the exit code. What the user can fix goes to stdout."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR2"):  # rank 0 decides when to leave
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    order = json.loads(sys.stdin.read())
    tie_to(order["parent"])
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    rank, size = order["rank"], order["size"]
    try:
        _train(order, rank, size)
    except Left:
        pass
    except Exception as error:
        words = str(error) if isinstance(error, ParibusError) else None
        if words := words or _of_the_machine(error, rank, size):
            channel.write(words)
            channel.flush()
            return 1
        raise
    return 0


def _train(order: dict[str, Any], rank: int, size: int) -> None:
    from torch._C._distributed_c10d import TCPStore

    from paribus.engine.execution.tasks import device_of, train_stack
    from paribus.engine.training.ranks import PATIENCE, Ranks
    from paribus.runs.advance import study_of
    from paribus.runs.worker import Context

    queue, task = Queue(Path(order["queue"])), Task(**order["task"])
    context = Context(queue, queue.read_order(), order["worker"], order["slot"], Leaving())
    for folder in context.order.search:
        add_own_folder(Path(folder))
    study = study_of(context.order, Path(task.home))
    device = device_of(context, study, rank)
    store = TCPStore("127.0.0.1", order["port"], size, timeout=PATIENCE)
    train_stack(study, task, context, Ranks.meet(rank, size, device, store))
    Ranks.part()


if __name__ == "__main__":
    sys.exit(main())
