"""Where a worker process begins: tied to who started it, before anything else is imported."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # prctl(2)


def tie_to(parent: int) -> None:
    """Let this process die with the process `parent`, which started it, at once and by force.

    Linux alone has a signal for it; elsewhere the end of a worker's input tells.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


def work_for(parent: int) -> int:
    """Be a worker that the process `parent` has started; returns the exit code."""
    tie_to(parent)
    from paribus.execution.worker import main

    return main()


def leave(code: int) -> NoReturn:
    """End this process.

    The interpreter is not taken down: that takes most of a second with PyTorch in it, and all that
    it would free goes with the process.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(work_for(int(sys.argv[1])))
