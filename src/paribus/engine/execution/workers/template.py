"""A process that has imported what workers need, and forks workers from itself (Linux).

Importing PyTorch and the rest takes seconds of a core; a fork takes milliseconds, and shares the
memory of what was imported. The template runs no code of a study: a worker that it forks has done
nothing but import, as a new interpreter has. While its workers train it imports what they need
after that, so that the next ones share it.

It is asked over a socket, its standard input. A message with three open files asks for a worker
that has them as its standard input, output and error, in the folder that the message names first,
and that searches the others for own code; one without files is the number of a worker to kill. The
template answers in JSON: `{"forked": pid}` in the order of asking, and `{"ended": pid, "status":
...}` (of `os.waitpid`) when a worker has left, and all that it had started was ended. When the
socket is closed it waits for its workers and leaves; on the signal END, which it also has when
whoever started it dies, it ends its workers and what they have started, and leaves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from paribus.digests import package_digest
from paribus.engine.execution.workers.lifetime import END, adopt, end_children, leave, tie_to
from paribus.search_path import add_own_folder

MESSAGE_BYTES = 2**17
STANDARD = (0, 1, 2)
# Threads that libraries start when they are imported, and bring safely over a fork.
SAFE_THREADS = {"jemalloc_bg_thd"}  # pyarrow's allocator
# Folders whose files declare what a study may name.
DECLARING = (
    "paribus.engine.data.corpora",
    "paribus.engine.evaluation.measures",
    "paribus.engine.model.attentions",
    "paribus.engine.model.mlps",
    "paribus.engine.model.norms",
    "paribus.engine.model.positions",
    "paribus.engine.probes",
    "paribus.engine.tasks.generators",
    "paribus.engine.training.averages",
    "paribus.engine.training.losses",
    "paribus.engine.training.optimizers",
    "paribus.engine.training.schedules",
)
# What a worker needs after its first trial, in the order of need: the study's analysis tells
# whether a trial diverged, SciPy finds the best temperature, and the harness asks its tasks.
LATER = (
    "paribus.analysis",
    "scipy.interpolate",
    "scipy.optimize",
    "paribus.engine.evaluation.harness.adapter",
    "lm_eval.tasks",
    "lm_eval.evaluator",
)
IDLE_SECONDS = 3.0  # without a request, before the first of it is imported
# A worker may be asked to leave; a terminal that closes is the business of the command, which may
# go on (`nohup`), and whose end is that of its workers.
ASKING = (signal.SIGINT, signal.SIGTERM)
# A scheduler tells all processes of a job that its time is over (SIGUSR2): the job is to hear it.
IGNORED = (
    *ASKING,
    *(getattr(signal, name, signal.SIGINT) for name in ("SIGHUP", "SIGQUIT", "SIGUSR2")),
)


def work_for(parent: int) -> int:
    """Be a worker that the process `parent` has started; returns the exit code."""
    tie_to(parent)
    adopt()
    from paribus.engine.execution.workers.worker import main

    return main()


def serve_for(parent: int, *, can_fork: bool) -> None:
    """Start workers until the socket is closed and all of them have left.

    They are forks where that is safe, and else new interpreters.
    """
    signal.signal(END, signal.SIG_DFL)  # it ends us at once, as long as there is nobody else
    tie_to(parent, END)
    adopt()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    is_warm = can_fork and _warm_up()
    signal.signal(END, _end)
    _serve(socket.socket(fileno=os.dup(0)), woken, is_warm=is_warm)


def _warm_up() -> bool:
    """Import what a worker needs; False where that fails, which a worker can tell better."""
    gc.disable()  # looking for garbage among what is imported takes a tenth of the time
    try:
        import paribus.engine.execution.workers.worker  # noqa: F401

        for package in DECLARING:  # or every worker would import them, one after the other
            folder = importlib.import_module(package)
            for info in pkgutil.iter_modules(folder.__path__):
                importlib.import_module(f"{package}.{info.name}")
        package_digest()  # known to every worker: half a second of each
    except Exception:
        return False
    finally:
        gc.enable()
    gc.freeze()  # looking for garbage in it would copy the memory that workers share
    return True


def _serve(channel: socket.socket, woken: int, *, is_warm: bool) -> None:
    here, running, is_open = os.getpid(), set[int](), True
    later, wait = list(LATER) if is_warm else [], IDLE_SECONDS
    while is_open or running:
        heard = [woken, *([channel] if is_open else [])]
        readable, _, _ = select.select(heard, [], [], wait if later and running else None)
        wait = IDLE_SECONDS if readable else 0.0
        if not readable:
            _import_later(later.pop(0))
        if channel in readable:
            message, files, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, len(STANDARD))
            if files:
                can_fork = is_warm and _threads() <= SAFE_THREADS
                pid = _start(here, files, *json.loads(message), can_fork=can_fork)
                for file in files:
                    os.close(file)
                running.add(pid)
                _tell(channel, {"forked": pid})
            elif message:
                if int(message) in running:  # nobody else has its number until we have waited
                    os.kill(int(message), signal.SIGKILL)
            else:
                is_open = False
        if woken in readable:
            os.read(woken, MESSAGE_BYTES)
            for pid in tuple(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    running.discard(pid)
                    end_children(running)
                    _tell(channel, {"ended": pid, "status": status})


def _end(*_: object) -> NoReturn:
    end_children(set())
    os._exit(1)


def _import_later(module: str) -> None:
    """Import what the workers of now import themselves, for those that are forked from here on."""
    gc.disable()
    with contextlib.suppress(Exception):  # a worker that needs it tells
        importlib.import_module(module)
    gc.enable()
    gc.freeze()


def _tell(channel: socket.socket, message: dict[str, int]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        channel.send(json.dumps(message).encode())


def _threads() -> set[str]:
    """Return the names of this process's threads besides the main one."""
    others = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    return {
        (task / "comm").read_text(encoding="utf-8", errors="replace").strip() for task in others
    }


def _start(here: int, files: list[int], folder: str, *own: str, can_fork: bool) -> int:
    """Start a worker and return its number.

    Where a fork would leave a thread in the middle of something it becomes a new interpreter.
    """
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (*ASKING, signal.SIGCHLD, END):
            signal.signal(number, signal.SIG_DFL)
        for file, number in zip(files, STANDARD, strict=True):
            os.dup2(file, number)
        os.closerange(len(STANDARD), os.sysconf("SC_OPEN_MAX"))
        os.chdir(folder)
        if not can_fork:
            searched = os.pathsep.join([os.environ["PYTHONPATH"], *own])
            command = (sys.executable, "-P", "-m", __spec__.name, "worker", str(here))
            os.execve(sys.executable, command, os.environ | {"PYTHONPATH": searched})
        for path in own:
            add_own_folder(Path(path))
        _draw_anew()
        code = work_for(here)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


def _draw_anew() -> None:
    """Let NumPy's global generator start anywhere, as in a new interpreter (Python's does)."""
    import numpy as np

    np.random.seed()


if __name__ == "__main__":
    kind, parent = sys.argv[1], int(sys.argv[2])
    if kind == "worker":
        leave(work_for(parent))
    serve_for(parent, can_fork=kind == "forks")
