"""Management of process trees, so that no child process outlives its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

END_SECONDS = 5.0  # a killed process that waits for a disk may take any time to end
TAIL_BYTES = 4096
TRACEBACK = "PARIBUS_TRACEBACK"  # variable; if set, a failed run prints its traceback
STOPPING = (signal.SIGTERM, signal.SIGUSR2)
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tie_to(parent: int) -> None:
    """Have the kernel kill this process when the parent process dies (Linux only)."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be killed.

    This requires Linux. On other systems, this process becomes the leader of a process group, which
    is terminated on exit.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if sys.platform != "linux":
        os.setpgid(0, 0)


def children() -> set[int]:
    """Return the PIDs of this process's children, or an empty set if they cannot be listed."""
    pid = os.getpid()
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()))
    except OSError:
        return set()


def has_died(pid: int, host: str) -> bool:
    """Return whether a process has exited, or False for processes on other hosts."""
    if host != platform.node():
        return False
    try:
        with contextlib.suppress(PermissionError):  # it is running, as another user
            os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def end_children(keep: set[int]) -> None:
    """Kill all child processes except `keep`, and orphans of the killed processes."""
    deadline = time.monotonic() + END_SECONDS
    while (pids := children() - keep) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def leave(code: int) -> NoReturn:
    """Kill all children and exit immediately, skipping the interpreter's slow shutdown."""
    end_children(set())
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform != "linux" and os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    os._exit(code)


def guard(worker: int, parent: int) -> int:
    """Wait for a child, kill its remaining descendants, and return its exit code.

    Signals are forwarded to the child. This process adopts orphans, so that it can kill them.

    Args:
        worker: PID of the child.
        parent: PID of a process whose death sends SIGTERM to the child, or 0 for none.
    """
    adopt_orphans()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and its orphans are next
            os.kill(worker, number)

    for number in STOPPING:
        signal.signal(number, pass_on)
    if parent:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            pass_on(signal.SIGTERM, None)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    end_children(set())
    if code < 0:  # for whoever waits for this process, it ends as the worker did
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


@contextlib.contextmanager
def ending_children() -> Iterator[None]:
    """On exit, kill all processes that were started inside the context, such as by custom code."""
    before = children()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        end_children(before)
        _prctl(PR_SET_CHILD_SUBREAPER, 0)


def ending(code: int) -> str:
    """Describe an exit code, such as `signal 9` or `exit code 1`."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def tail(path: Path) -> list[str]:
    """Return the last lines of a log in reverse order, or [] if the file does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in reversed(lines) if line.strip()]


class Left(BaseException):
    """Raised in a trial's process by SIGTERM, except inside `Leaving.hold`.

    This is not an `Exception`, so that libraries and custom modules do not swallow it.
    """


class Leaving:
    """SIGTERM handler that lets a trial's process stop gracefully.

    Attributes:
        asked: whether this process has received SIGTERM.
    """

    def __init__(self) -> None:
        self.asked, self._holding = False, 0

    def listen(self) -> None:
        """Install the signal handler. Must be called from the main thread."""
        signal.signal(signal.SIGTERM, self._hear)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Suppress `Left` inside the context, which must check `asked` instead."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1

    def _hear(self, *_: object) -> None:
        self.asked = True
        if not self._holding:
            raise Left
