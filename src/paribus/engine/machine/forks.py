"""Workers as forks of a template (see `template`), seen from the process that wants them.

A template serves every run of its process, one after the other, as long as a new interpreter
would come out the same: while the environment, the search path and the source of paribus stay.
Folders of own code are told to each worker: loading some starts no other template.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from paribus.search_path import own_folders, shared_folders

# Nothing that a worker imports reads where pytest is, or what the terminal of its parent is like.
PASSING = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "NO_COLOR"}
MESSAGE_BYTES = 4096
# A template that has this signal ends its workers and leaves. Nobody sends it to a whole group.
END = getattr(signal, "SIGUSR1", signal.SIGTERM)
END_SECONDS = 15.0  # then it is ended by force


Begin = Callable[[int], subprocess.Popen[bytes]]


class Running(Protocol):
    """A process of this machine; what of `subprocess.Popen` is used."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or minus its signal, when it has left. Raises where it has not."""
        ...

    def kill(self) -> None:
        """End it by force."""
        ...


class Fork:
    """A worker that a template forks, or will when it has imported everything."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._forked, self._ended = threading.Event(), threading.Event()
        self.pid = 0
        self._code = 0

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or minus its signal. Raises TimeoutError where it runs on."""
        if not self._ended.wait(timeout):
            raise TimeoutError
        return self._code

    def kill(self) -> None:
        """End it by force, wherever it is."""
        self._forked.wait()
        if not self._ended.is_set():
            self._template.tell_to_kill(self.pid)

    def has_forked(self, pid: int) -> None:
        """It runs."""
        self.pid = pid
        self._forked.set()

    def has_ended(self, code: int) -> None:
        """It has left, or never will run."""
        self._code = code
        self._ended.set()
        self._forked.set()


class Template:
    """A template process. `begin` starts it with the file of that number as its standard input.

    Raises what `begin` raises.
    """

    def __init__(self, begin: Begin) -> None:
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._asked: deque[Fork] = deque()  # in the order in which they will be told of
        self._running: dict[int, Fork] = {}
        self._begin = begin
        self._process: subprocess.Popen[bytes] | None = None
        self._began = threading.Event()
        self._failure: BaseException | None = None
        self.is_over = False
        # Linux lets a process die with the *thread* that started it: this one never ends before.
        threading.Thread(target=self._keep, daemon=True).start()
        self._began.wait()
        if self._failure is not None:
            self._channel.close()
            raise self._failure

    def fork(self, files: Sequence[int]) -> Fork:
        """A worker with these files as its standard input, output and error; does not wait."""
        one = Fork(self)
        with self._lock:
            if self.is_over:
                one.has_ended(1)
                return one
            self._asked.append(one)
            with contextlib.suppress(ConnectionError):  # it has died, which `_keep` sees
                socket.send_fds(self._channel, [_where()], list(files))
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
        assert self._process is not None
        self._process.send_signal(END)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _keep(self) -> None:
        """Start it and hear what it says, until it has left."""
        try:
            self._process = self._begin(self._theirs.fileno())
        except BaseException as failure:  # for who waits for it: a thread can tell nobody
            self._failure = failure
            return
        finally:
            self._theirs.close()
            self._began.set()
        with contextlib.suppress(ConnectionError):
            while line := self._channel.recv(MESSAGE_BYTES):
                self._hear(json.loads(line))
        code = self._process.wait()
        with self._lock:
            self.is_over = True
            for one in (*self._asked, *self._running.values()):
                one.has_ended(code)
            self._channel.close()

    def _hear(self, message: dict[str, int]) -> None:
        with self._lock:
            if "forked" in message:
                one = self._running[message["forked"]] = self._asked.popleft()
                one.has_forked(message["forked"])
            else:
                code = os.waitstatus_to_exitcode(message["status"])
                self._running.pop(message["ended"]).has_ended(code)


def _where() -> bytes:
    """The folder that a worker starts in, and those of own code that it searches."""
    return os.fsencode(json.dumps([os.getcwd(), *own_folders()]))


# Process, environment, search path, source: what a template that serves again has in common.
Key = tuple[int, frozenset[tuple[str, str]], tuple[str, ...], int]
_THERE: dict[bool, tuple[Key, Template]] = {}
_LOCK = threading.Lock()


def template(begin: Begin, *, is_fresh: bool) -> Template:
    """The template of this process, started by `begin` where there is none.

    With `is_fresh` another one than that of all other workers: what an interpreter draws at its
    start, such as the order of sets, is not theirs.
    """
    with _LOCK:
        key = (os.getpid(), _settings(), tuple(shared_folders()), _newest())
        if is_fresh in _THERE:
            before, there = _THERE[is_fresh]
            if before == key and not there.is_over:
                return there
            if before[0] == os.getpid():
                there.retire()
        there = Template(begin)
        _THERE[is_fresh] = (key, there)
        return there


def _settings() -> frozenset[tuple[str, str]]:
    """The environment, which libraries read when they are imported."""
    return frozenset((name, value) for name, value in os.environ.items() if name not in PASSING)


def _newest() -> int:
    """When the source of paribus was changed last: a template holds what it has imported."""
    root = Path(__file__).parents[1]
    return max(path.stat().st_mtime_ns for path in root.rglob("*.py"))


@atexit.register
def _leave_none() -> None:
    """Templates have nothing left to do when this process ends."""
    for key, there in _THERE.values():
        if key[0] == os.getpid():
            there.kill()
