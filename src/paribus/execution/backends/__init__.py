"""Where workers run, one file each behind one protocol: `local` processes of this machine.

A new file in this folder is known by its name. Nothing outside knows how a worker is started, or on
which machine: it is sent lines, and its lines are heard.
"""

from paribus.execution.backends.declare_backend import (
    Backend,
    End,
    Hear,
    WorkerProcess,
    find_backend,
)

__all__ = ["Backend", "End", "Hear", "WorkerProcess", "find_backend"]
