"""Process trees that end together: children die with their parent, and parents kill children."""

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
STOPPING = (signal.SIGTERM, signal.SIGUSR2)
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tie_to(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process the signal `number` when its parent dies (Linux only)."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


def adopt_orphans() -> None:
    """Adopt processes that children leave behind, so that they can be killed.

    This works on Linux only. On other systems, this process leads a process group instead, which
    is terminated when it ends.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if sys.platform != "linux":
        os.setpgid(0, 0)


def children() -> set[int]:
    """Return the PIDs of this process's children, or an empty set if the system hides them."""
    pid = os.getpid()
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()))
    except OSError:
        return set()


def has_died(pid: int, host: str) -> bool:
    """Return whether a process has ended. A process of another host counts as running."""
    if host != platform.node():
        return False
    try:
        with contextlib.suppress(PermissionError):  # it is running, as another user
            os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def end_children(keep: set[int]) -> None:
    """Kill every child that is not in `keep`, and the orphans of killed children."""
    deadline = time.monotonic() + END_SECONDS
    while (pids := children() - keep) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def leave(code: int) -> NoReturn:
    """Kill the children and exit at once. A regular exit takes almost a second longer."""
    end_children(set())
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform != "linux" and os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    os._exit(code)


def guard(worker: int, parent: int) -> int:
    """Wait for a child, kill the processes that it leaves behind, and return its exit code.

    Signals are forwarded to the child. This process adopts orphans, so that it can kill them.

    Args:
        worker: the PID of the child.
        parent: the PID of a process whose death sends SIGTERM to the child, or 0.
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
    """Kill processes that are started inside the context, such as by custom code."""
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


def tail(path: Path | None) -> list[str]:
    """Return the last lines of a log, last line first, or [] if the file does not exist."""
    try:
        with open(path or "", "rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in reversed(lines) if line.strip()]


class Left(BaseException):
    """Raised in a trial's process when it is asked to stop, unless `hold` defers this.

    It is not an `Exception`, so that libraries and custom modules do not swallow it.
    """


class Leaving:
    """A request to stop, sent as SIGTERM.

    Attributes:
        asked: whether this process was asked to stop.
    """

    def __init__(self) -> None:
        self.asked, self._holding = False, 0

    def listen(self) -> None:
        """Handle SIGTERM; call this in the main thread."""
        signal.signal(signal.SIGTERM, self._hear)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Do not raise `Left` inside the context. Its code checks `asked` instead."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1

    def _hear(self, *_: object) -> None:
        self.asked = True
        if not self._holding:
            raise Left
