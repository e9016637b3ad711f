"""Processes end with whoever started them, with what they started, or when asked to leave.

This is imported before anything else is, so it imports little.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

# A template (`template.py`) that has this signal ends its workers and leaves. Nobody sends it to a
# whole group.
END = getattr(signal, "SIGUSR1", signal.SIGTERM)
END_SECONDS = 5.0  # a killed process that waits for a disk may take any time to end
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tie_to(parent: int, number: int = getattr(signal, "SIGKILL", 9)) -> None:
    """Let this process have the signal `number` when the process `parent`, which started it, dies.

    Linux alone has a signal for it; elsewhere the end of a worker's input tells.
    """
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, number)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


def adopt() -> None:
    """Become the parent of what the processes that this one started leave behind (Linux).

    So whatever a worker's own code has started, in a session of its own too, is the worker's as
    long as it lives, and then the template's, which ends it. Elsewhere a worker leads a group of
    processes, and ends that when it leaves by itself.
    """
    if sys.platform == "linux":
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    elif os.name == "posix":
        os.setpgid(0, 0)


def children() -> set[int]:
    """Return the children of this process; none where the system does not tell."""
    here = os.getpid()
    try:
        return set(map(int, Path(f"/proc/{here}/task/{here}/children").read_bytes().split()))
    except OSError:
        return set()


def end_children(but: set[int]) -> None:
    """End every child but these, and what they leave behind: all that somebody else has started."""
    deadline = time.monotonic() + END_SECONDS
    while (others := children() - but) and time.monotonic() < deadline:
        for pid in others:
            with contextlib.suppress(PermissionError):  # it has become another user's
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


@contextlib.contextmanager
def ending_children() -> Iterator[None]:
    """End what own code starts in the body, where it runs in a process of the user's own."""
    before = children()
    is_linux = sys.platform == "linux"
    if is_linux:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        end_children(before)
        if is_linux:
            _prctl(PR_SET_CHILD_SUBREAPER, 0)


def leave(code: int) -> NoReturn:
    """End this process but not its interpreter first, which takes most of a second."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform != "linux" and os.name == "posix" and os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    os._exit(code)


class Left(BaseException):
    """Raised wherever a worker is when it is asked to leave, unless it holds on to something.

    No `Exception`: neither a library nor a user's own module may go on after it.
    """


class Leaving:
    """Tells whether this worker was asked to leave, by SIGTERM or by the end of its input.

    Then it finishes its training step, and nothing else.
    """

    def __init__(self) -> None:
        self.asked = False
        self._holding = 0

    def listen(self) -> None:
        """Take SIGTERM as the request; from the main thread."""
        signal.signal(signal.SIGTERM, self._hear)

    def request(self) -> None:
        """Ask, from another thread."""
        main = threading.main_thread().ident
        if hasattr(signal, "pthread_kill") and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)  # wakes it where it sleeps, too
        else:
            signal.raise_signal(signal.SIGTERM)

    def check(self) -> None:
        """Raise Left where it was asked meanwhile."""
        if self.asked:
            raise Left

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise nothing in the body; `asked` has to be looked at."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self._holding:
            raise Left
