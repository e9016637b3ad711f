"""Backends start workers, one file each behind one protocol: `local` processes of this machine.

A new file in this folder is known by its name; the user's own is named by its import path
(`--backend cluster.py:Slurm`, see docs/how-to/cluster.md). Nothing outside knows how a worker is
started, or on which machine: it is sent lines, and its lines are heard.
"""

from paribus.engine.execution.backends.local import WORKER, PipedProcess
from paribus.engine.execution.backends.protocol import (
    WORD,
    Backend,
    End,
    Hear,
    WorkerProcess,
    backend,
    called,
    find_backend,
)
from paribus.study.choices import Options

__all__ = [
    "WORD",
    "WORKER",
    "Backend",
    "End",
    "Hear",
    "Options",
    "PipedProcess",
    "WorkerProcess",
    "backend",
    "called",
    "find_backend",
]
