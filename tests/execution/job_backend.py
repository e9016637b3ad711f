"""A scheduler without a cluster: jobs are processes of this machine in sessions of their own, which
know nothing of who submitted them. What it was asked is kept, in files, for tests to count.

It is also what a backend of jobs of one's own looks like.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from paribus.runs.executors.jobs import Backend, JobOptions, JobState


class Options(JobOptions):
    home: str


class Processes(Backend):
    name = "processes"
    options: Options

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        self._note(f"submit {name} {len(commands)}")
        for number, command in enumerate(commands):
            with (scratch / f"{number}.log").open("ab") as log:
                process = subprocess.Popen(command, stderr=log, start_new_session=True)
            (Path(self.options.home) / f"{name}_{number}").write_text(str(process.pid))

    def states(self, names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        self._note(f"states {time.monotonic()}")
        found = {}
        for path in Path(self.options.home).glob("paribus-*_*"):
            name, _, number = path.name.rpartition("_")
            if name in names:
                is_alive = _is_alive(int(path.read_text()))
                words = "RUNNING" if is_alive else "FAILED: it is no more"
                phase = "running" if is_alive else "ended"
                found[name, int(number)] = JobState(path.name, phase, words, "here")
        return found

    def cancel(self, names: Collection[str]) -> None:
        self._note("cancel")
        for path in Path(self.options.home).glob("paribus-*_*"):
            if path.name.rpartition("_")[0] in names:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.read_text()), signal.SIGTERM)

    def _note(self, line: str) -> None:
        with (Path(self.options.home) / "asked").open("a") as file:
            file.write(line + "\n")


# The small study with three seeds, as a file.
SMALL_TOML = """
name = "small"
seeds = [1, 2, 3]
data = {corpus = "text", path = "text.txt", seq_len = 16}
model = {n_layer = 2, n_head = 2, d_model = 16}
training = {iterations = 8, batch_size = 4}
evaluation = {every = 3}
stability = {smoothing_steps = 2, median_steps = 3, spike_steps = 2}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
[arms.rmsnorm]
set."model.embedding.norm" = "rmsnorm"
"""


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
