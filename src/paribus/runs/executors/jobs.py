"""Backends whose workers are jobs of a scheduler: they wait in its queue and outlive the command.

A job is the command line of a worker. A scheduler needs `submit`, `states` and `cancel`. If all
jobs end before the run is over, they are submitted again, also by the next command.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.runs.executors import Backend, Retrying
from paribus.runs.processes import tail
from paribus.runs.queue import Queue
from paribus.search_path import shared_folders
from paribus.untrusted_io import is_regular, read_json

Count = Annotated[int, Field(ge=1)]
Phase = Literal["queued", "running", "ended"]
ASK_SECONDS = 2.0  # between two questions to the scheduler
WAIT_SECONDS = 10.0  # a job waits, or the scheduler is silent, before that is shown
UNKNOWN_SECONDS = 30.0  # a scheduler may not list a new job
END_SECONDS = 300.0  # for jobs to leave when the run is over
CANCEL_SECONDS = 15.0  # after which they are cancelled
SUBMITTED = "submitted.json"
LOGGER = logging.getLogger("paribus")
NAME = re.compile(r"paribus-[0-9a-f]{12}-[1-9][0-9]{0,5}")


class JobOptions(Retrying):
    """Options of every backend of jobs."""

    jobs: Count = 16
    """How many run at the same time, at most."""
    workers: Count | None = None
    """Trials at the same time in a job; by default one for each GPU or core that it asks for."""


@dataclass(frozen=True)
class JobState:
    """State of a job, as its scheduler reports it.

    Attributes:
        id: as users type it.
        phase: "ended" if it will not run again by itself.
        words: the scheduler's name of the state, and its reason.
        node: where it runs.
        is_cancelled: whether a person ended it.
    """

    id: str
    phase: Phase
    words: str = ""
    node: str = ""
    is_cancelled: bool = False


States = Mapping[tuple[str, int], JobState]
"""State of each job, keyed by the name of its submission and its number."""


class JobBackend(Backend):
    """Submits arrays of jobs, each under a name that is never used again.

    Attributes:
        submissions: the number of jobs of each submission of the run, by name.
    """

    options: Any  # `JobOptions`, or a subclass of it

    @abstractmethod
    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit a job for each command; `scratch` is a folder for the scheduler's files.

        Raises ParibusError in the scheduler's words.
        """

    @abstractmethod
    def states(self, names: Collection[str]) -> States:
        """Ask the scheduler once for all jobs of these submissions that it knows."""

    @abstractmethod
    def cancel(self, names: Collection[str]) -> None:
        """End all jobs of these submissions, queued or running, and no others."""

    def log(self, scratch: Path, number: int) -> Path:
        """Return the file with a job's standard error; it may not exist yet."""
        return scratch / f"{number}.log"

    def workers(self, devices_per_trial: int) -> int | None:
        """Return how many trials a job runs at the same time; None leaves it to the machine.

        By default one for the devices of a trial: GPUs of a job, or else its cores. Raises
        ParibusError if a job has fewer GPUs than a trial takes.
        """
        options = self.options
        gpus, cpus = (getattr(options, name, None) for name in ("gpus", "cpus"))
        if gpus and devices_per_trial > max(gpus, 1):
            raise ParibusError(
                f"backend '{self.name}': resources.devices_per_trial = {devices_per_trial}, and "
                f"each job has gpus = {gpus:g}; set gpus = {devices_per_trial}, or use fewer "
                "devices"
            )
        if options.workers or not hasattr(options, "gpus"):
            return options.workers
        return max(int(gpus or cpus or 1) // devices_per_trial, 1)

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> None:
        """Submit jobs, or find those that an earlier command has submitted."""
        self._queue = queue
        workers = self.workers(devices_per_trial) or 1
        self._n_jobs = min(self.options.jobs, math.ceil(n_trials / workers))
        self._asked = -ASK_SECONDS
        self._last_alive = time.monotonic()
        self._resubmissions = 0
        self._seen: dict[str, float] = {}
        self.submissions = read_submissions(queue)
        if not self.submissions:
            self._submit()

    def check(self) -> None:
        """Ask the scheduler, and submit jobs again if all have ended. Raises ParibusError."""
        if time.monotonic() - self._asked < ASK_SECONDS:
            return
        states = self._ask()
        if states is None or self._queue.is_over:
            return
        ended = {f"{name}-{k}" for (name, k), state in states.items() if state.phase == "ended"}
        for task, record in self._queue.claims().items():
            if record.get("worker") in ended:
                self._queue.release_dead(task, "", "a job ended")
        if len(ended) < len(states):
            self._last_alive = time.monotonic()
        elif states or time.monotonic() - self._last_alive >= UNKNOWN_SECONDS:
            self._submit_again(next(iter(states.values()), None))

    def leave(self, *, is_interrupted: bool) -> None:
        """Wait until all jobs have left, and cancel those that do not; after Ctrl-C they go on."""
        if is_interrupted:
            LOGGER.warning(
                "jobs go on without this command; `paribus cancel %s` ends them",
                self._queue.path.parent,
            )
            return
        began, is_cancelled = time.monotonic(), False
        while (waited := time.monotonic() - began) < END_SECONDS:
            time.sleep(max(self._asked + ASK_SECONDS - time.monotonic(), 0))
            states = self._ask()
            if states is not None and all(state.phase == "ended" for state in states.values()):
                return
            if waited > CANCEL_SECONDS and not is_cancelled:  # such as one that is queued again
                self.cancel(list(self.submissions))
                is_cancelled = True

    def _submit(self) -> None:
        token = self._queue.read_order().token
        name = f"paribus-{token}-{len(self.submissions) + 1}"
        path = os.pathsep.join(shared_folders())
        worker = ["env", f"PYTHONPATH={path}", sys.executable, "-P", "-m", "paribus.runs.worker"]
        worker += [str(self._queue.path), "--token", token, "--name"]
        scratch = scratch_folder(self._queue, name)
        scratch.mkdir(parents=True, exist_ok=True)
        self.submit(name, [[*worker, f"{name}-{k}"] for k in range(self._n_jobs)], scratch)
        self.submissions[name] = self._n_jobs
        write_bytes(self._queue.path / SUBMITTED, json.dumps(self.submissions).encode())
        self._last_alive = time.monotonic()

    def _submit_again(self, last: JobState | None) -> None:
        """Submit jobs after all have ended. Raises ParibusError if that happened too often."""
        if last is not None and last.is_cancelled:
            raise ParibusError(
                f"job {last.id} was cancelled; run again to continue", code="unfinished"
            )
        self._resubmissions += 1
        log = self.log(scratch_folder(self._queue, list(self.submissions)[-1]), 0)
        words = f"the jobs ended ({last.words if last else 'gone from the queue'})"
        reason = "".join(f": {line}" for line in tail(log)[:1])
        if self._resubmissions > self.options.retries:
            has_begun = any(True for _ in self._queue.events({}))
            hint = "" if has_begun else f"; does every machine see {self._queue.path}?"
            raise ParibusError(
                f"{words} before the run{reason}{hint}; finished trials are kept: run again to "
                "continue",
                code="system",
            )
        LOGGER.warning("%s%s; others are submitted", words, reason)
        self._submit()

    def _ask(self) -> States | None:
        """Return what the scheduler reports; None while it does not answer."""
        self._asked = time.monotonic()
        try:
            states = self.states(list(self.submissions))
        except ParibusError as error:
            if error.code == "not_installed":
                raise
            self._warn([f"{error}; it is asked again"])
            return None
        queued = {state.words for state in states.values() if state.phase == "queued"}
        self._warn([f"jobs wait ({words})" for words in queued])
        return states

    def _warn(self, lines: Iterable[str]) -> None:
        """Warn of each line once, after the scheduler has given it for some seconds."""
        for line in lines:
            since = self._seen.setdefault(line, self._asked)
            if self._asked - since >= WAIT_SECONDS:
                self._seen[line] = math.inf
                LOGGER.warning("%s", line)


def scratch_folder(queue: Queue, name: str) -> Path:
    """Return the folder for one submission's scheduler files."""
    return queue.path / "scheduler" / name


def read_submissions(queue: Queue) -> dict[str, int]:
    """Return the number of jobs of each submission, by name.

    Raises ParibusError for a name that is not ours, because `cancel` ends jobs by name.
    """
    path = queue.path / SUBMITTED
    if not is_regular(path):
        return {}
    submissions = read_json(path)
    if not (isinstance(submissions, dict) and all(map(NAME.fullmatch, submissions))):
        raise ParibusError(f"{path} was changed; remove {queue.path} and run again", code="changed")
    return {name: int(n) for name, n in submissions.items()}
