"""Where a worker process begins: tied to who started it, before anything else is imported."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

END_SECONDS = 5.0  # a killed process that waits for a disk may take any time to end
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where Linux is."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tie_to(parent: int, number: int = getattr(signal, "SIGKILL", 9)) -> None:
    """Let this process have the signal `number` when the process `parent`, which started it, dies.

    By default it dies at once and by force. Linux alone has a signal for it; elsewhere the end of
    a worker's input tells.
    """
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, number)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


def adopt() -> None:
    """From now on be the parent of what the processes that this one started leave behind.

    So whatever a worker's own code has started, in a session of its own too, is the worker's as
    long as it lives, and then the template's, which ends it. Linux alone has this: elsewhere a
    worker leads a group of processes, and ends that when it leaves by itself.
    """
    if sys.platform == "linux":
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    elif os.name == "posix":
        os.setpgid(0, 0)


def children() -> set[int]:
    """The children of this process; none where the system does not tell."""
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


def work_for(parent: int) -> int:
    """Be a worker that the process `parent` has started; returns the exit code."""
    tie_to(parent)
    adopt()
    from paribus.engine.execution.worker import main

    return main()


def leave(code: int) -> NoReturn:
    """End this process.

    The interpreter is not taken down: that takes most of a second with PyTorch in it, and all that
    it would free goes with the process.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform != "linux" and os.name == "posix" and os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    os._exit(code)


if __name__ == "__main__":
    leave(work_for(int(sys.argv[1])))
