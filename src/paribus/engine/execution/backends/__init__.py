"""Backends say where trials run, one file each: `local` processes, or jobs of `slurm` or `ray`.

A new file in this folder is known by its name; the user's own is named by its import path
(`--backend cluster.py:Queue`, see docs/how-to/cluster.md). Of two kinds: one starts workers, which
are sent lines and whose lines are heard (`protocol.py`); one submits jobs, which outlive the
command and are known by files (`jobs.py`). Nothing outside knows on which machine anything runs.
"""

from paribus.engine.execution.backends.local import WORKER, PipedProcess
from paribus.engine.execution.backends.protocol import (
    Backend,
    End,
    Hear,
    WorkerProcess,
    backend,
    called,
    find_backend,
    shipped,
)
from paribus.study.choices import Options

__all__ = [
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
    "shipped",
]
