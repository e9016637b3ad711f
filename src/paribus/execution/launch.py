"""Where a worker process begins: tied to who started it, before anything else is imported."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


def tie_to(parent: int, number: int = getattr(signal, "SIGKILL", 9)) -> None:
    """Let this process have the signal `number` when the process `parent`, which started it, dies.

    By default it dies at once and by force. Linux alone has a signal for it; elsewhere the end of
    a worker's input tells.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


def adopt() -> None:
    """From now on be the parent of what the processes that this one started leave behind.

    So whatever a worker's own code has started, in a session of its own too, is the worker's as
    long as it lives, and then the template's, which ends it. Linux alone has this: elsewhere a
    worker leads a group of processes, and ends that when it leaves by itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    elif os.name == "posix":
        os.setpgid(0, 0)


def work_for(parent: int) -> int:
    """Be a worker that the process `parent` has started; returns the exit code."""
    tie_to(parent)
    adopt()
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
    if sys.platform != "linux" and os.name == "posix" and os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    os._exit(code)


if __name__ == "__main__":
    leave(work_for(int(sys.argv[1])))
