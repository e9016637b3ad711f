"""Backend `local`, with one worker on this machine that stops with the command.

The worker runs one child process per CPU core or per GPU.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from paribus.runs.executors.jobs import Backend, JobState, Retrying, States
from paribus.runs.processes import ending


class Local(Backend):
    """Backend with one worker process on this machine."""

    name = "local"
    Options = Retrying
    is_here = True

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def workers(self, devices_per_trial: int) -> None:
        """Return None, so that the worker decides how many trials run concurrently."""

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Start the worker process."""
        [command] = commands
        with open(scratch / "0.log", "wb") as log:
            words = [*command, "--parent", str(os.getpid())]
            self._processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def states(self, names: Collection[str]) -> States:
        """Return the state of each worker, with the exit code if it has ended."""
        states = {}
        for name in names:
            process = self._processes[name]
            code = process.poll()
            how = ("running", "") if code is None else ("ended", ending(code))
            states[name, 0] = JobState(str(process.pid), *how)
        return states

    def cancel(self, names: Collection[str]) -> None:
        """Send SIGTERM to the workers, whose children then write checkpoints and exit."""
        for name in names:
            self._processes[name].terminate()

    def leave(self, *, is_interrupted: bool) -> None:
        """Wait until the worker has exited, and kill it if it takes too long."""
        super().leave(is_interrupted=is_interrupted)
        for process in self._processes.values():
            process.kill()
            process.wait()
