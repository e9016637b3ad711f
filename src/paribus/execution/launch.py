"""Where a worker process begins: tied to who started it, before anything else is imported."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2)


def tie_to(parent: int) -> None:
    """Let this process die with the process `parent`, which started it, at once and by force.

    Linux alone has a signal for it; elsewhere the end of a worker's input tells.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)  # it died before we asked for the signal


if __name__ == "__main__":
    tie_to(int(sys.argv[1]))
    from paribus.execution.worker import main

    sys.exit(main())
