"""The processes of this machine that workers are: forks of a template, or new interpreters.

A template (`template.py`) serves every run of its process, one after the other, as long as a new
interpreter would come out the same: while the environment and the search path stay. Folders of own
code are told to each worker: loading some starts no other template.

The standard library's forkserver starts workers as fast, and does not do for two reasons. It runs
the caller's `__main__` again in every worker, so that a notebook, a script without a guard or one
from standard input cannot run a study; and it does not end what own code leaves behind.

A command asks for workers before it imports the rest, so this imports little.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

from paribus.engine import has_engine
from paribus.engine.execution.workers.lifetime import END
from paribus.engine.ops import SWITCH, is_settled, resolve
from paribus.search_path import own_folders, shared_folders

Device = Literal["auto", "cpu", "cuda", "mps"]
Begin = Callable[[int], "subprocess.Popen[bytes]"]

# -P: the current folder may be somebody else's; it is searched only where ours has it.
TEMPLATE = (sys.executable, "-P", "-m", "paribus.engine.execution.workers.template")
FORKS = True  # workers are forks of a template where that is safe
# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
# What no worker reads: where pytest is, what the terminal of its parent is like, and the ledger.
PASSING = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "NO_COLOR", "PARIBUS_LEDGER"}
MESSAGE_BYTES = 4096
END_SECONDS = 15.0  # then a template is ended by force


class Fork:
    """A worker that a template forks, or will when it has imported everything."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self.forked: Future[int] = Future()  # its number; 0 of one that never will run
        self.ended: Future[int] = Future()  # its exit code

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, or minus its signal. Raises TimeoutError where it runs on."""
        return self.ended.result(timeout)

    def kill(self) -> None:
        """End it by force, wherever it is."""
        if (pid := self.forked.result()) and not self.ended.done():
            self._template.tell_to_kill(pid)

    def end(self, code: int) -> None:
        """Note that it has left, or never will run."""
        if not self.forked.done():
            self.forked.set_result(0)
        self.ended.set_result(code)


class Template:
    """A template process. `begin` starts it with the file of that number as its standard input.

    Raises what `begin` raises.
    """

    def __init__(self, begin: Begin) -> None:
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._asked: deque[Fork] = deque()  # in the order in which they will be told of
        self._running: dict[int, Fork] = {}
        self._began: Future[subprocess.Popen[bytes]] = Future()
        self.is_over = False
        # Linux lets a process die with the *thread* that started it: this one never ends before.
        threading.Thread(target=self._keep, args=(begin,), daemon=True).start()
        self.process = self._began.result()

    def fork(self, files: Sequence[int]) -> Fork:
        """Ask for a worker with these files as its standard input, output and error."""
        one = Fork(self)
        with self._lock:
            if self.is_over:
                one.end(1)
                return one
            self._asked.append(one)
            where = os.fsencode(json.dumps([os.getcwd(), *own_folders()]))
            with contextlib.suppress(ConnectionError):  # it has died, which `_keep` sees
                socket.send_fds(self._channel, [where], list(files))
        return one

    def tell_to_kill(self, pid: int) -> None:
        """End a worker that has not ended."""
        with contextlib.suppress(OSError):  # the template has died, and so has the worker
            self._channel.send(str(pid).encode())

    def retire(self) -> None:
        """Let it leave when its last worker has."""
        with self._lock:
            if not self.is_over:
                with contextlib.suppress(OSError):
                    self._channel.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it, all its workers and what they have started."""
        self.process.send_signal(END)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _keep(self, begin: Begin) -> None:
        """Start it and hear what it says, until it has left."""
        try:
            process = begin(self._theirs.fileno())
        except BaseException as failure:
            self._channel.close()
            self._began.set_exception(failure)
            return
        finally:
            self._theirs.close()
        self._began.set_result(process)
        with contextlib.suppress(ConnectionError):
            while line := self._channel.recv(MESSAGE_BYTES):
                self._hear(json.loads(line))
        code = process.wait()
        with self._lock:
            self.is_over = True
            for one in (*self._asked, *self._running.values()):
                one.end(code)
            self._channel.close()

    def _hear(self, message: dict[str, int]) -> None:
        with self._lock:
            if "forked" in message:
                one = self._running[message["forked"]] = self._asked.popleft()
                one.forked.set_result(message["forked"])
            else:
                code = os.waitstatus_to_exitcode(message["status"])
                self._running.pop(message["ended"]).end(code)


# Process, environment and search path: what a template that serves again has in common.
Key = tuple[int, frozenset[tuple[str, str]], tuple[str, ...]]
_THERE: dict[bool, tuple[Key, Template]] = {}
_LOCK = threading.Lock()


def shared_template(begin: Begin, *, is_fresh: bool) -> Template:
    """Return the template of this process, started by `begin` where there is none.

    With `is_fresh` another one than that of all other workers: what an interpreter draws at its
    start, such as the order of sets, is not theirs.
    """
    with _LOCK:
        settings = frozenset(one for one in os.environ.items() if one[0] not in PASSING)
        key = (os.getpid(), settings, tuple(shared_folders()))
        if is_fresh in _THERE:
            before, there = _THERE[is_fresh]
            if before == key and not there.is_over:
                return there
            if before[0] == os.getpid():
                there.retire()
        there = Template(begin)
        _THERE[is_fresh] = (key, there)
        return there


@atexit.register
def _leave_none() -> None:
    """End the templates of this process, which ends."""
    for key, there in _THERE.values():
        if key[0] == os.getpid():
            there.kill()


def is_surely_cpu(device: Device | str) -> bool:
    """Tell whether there is no sign of a GPU, without PyTorch; False where that is unknown."""
    if device != "auto":
        return device == "cpu"
    gpu = shutil.which("nvidia-smi") or any(Path(file).exists() for file in GPU_FILES)
    return sys.platform == "linux" and not gpu


def can_fork() -> bool:
    """Tell whether workers are forks here: what a driver of a GPU knows cannot be forked."""
    return FORKS and is_surely_cpu("auto")


def has_template() -> bool:
    """Tell whether a template starts the workers here, as forks or not: on Linux it can end all
    that they leave behind."""
    return FORKS and sys.platform == "linux"


def worker_environment() -> dict[str, str]:
    """Return the environment variables that a worker needs beside those that are there."""
    return {
        "OMP_NUM_THREADS": "1",
        # Needed for deterministic matrix products on CUDA.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # Settled here, so that no worker does without what another has.
        SWITCH: resolve(),
        # The worker imports what this process imports, installed or not.
        "PYTHONPATH": os.pathsep.join([*shared_folders(), *own_folders()]),
    }


def start_program(
    command: Sequence[str], files: Sequence[int], *, searches_own_code: bool = True
) -> subprocess.Popen[bytes]:
    """Start a program with `files` as its standard input, output and error."""
    environment = os.environ | worker_environment()
    if not searches_own_code:
        environment["PYTHONPATH"] = os.pathsep.join(shared_folders())
    stdin, stdout, stderr = files
    return subprocess.Popen([*command], stdin=stdin, stdout=stdout, stderr=stderr, env=environment)


def worker_template(*, is_fresh: bool) -> Template:
    """Return what starts the workers of this process; see `shared_template`."""
    resolve()  # it may set what the environment of the template has, by which it is known
    return shared_template(_start_template, is_fresh=is_fresh and can_fork())


def warm_up() -> None:
    """Begin to import what workers need, where they will be forks; does not wait.

    It takes seconds of a core, while this process has a study to read and a text to prepare. What
    goes wrong is told when the first worker is asked for. Kernels are compiled then, too: a mistake
    in the study is told first, and alone.
    """
    if can_fork() and has_engine():
        threading.Thread(target=_warm_up, daemon=True).start()


def _warm_up() -> None:
    with contextlib.suppress(Exception):
        if is_settled():
            worker_template(is_fresh=False)


def _start_template(channel: int) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    command = (*TEMPLATE, "forks" if can_fork() else "anew", str(os.getpid()))
    return start_program(command, (channel, nowhere, nowhere), searches_own_code=False)
