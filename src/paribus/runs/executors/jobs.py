"""Workers as jobs: each job runs a worker, which does tasks until none are left.

A backend submits jobs, reports their states and cancels them. Jobs wait in the scheduler's queue
and outlive the command that submitted them. If all jobs end before the run is finished, the current
command or the next one submits new jobs.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.runs.processes import tail
from paribus.runs.queue import Queue
from paribus.study.choices import Options
from paribus.study.custom_code import OWN_FOLDERS
from paribus.untrusted_io import is_regular, read_json

Count = Annotated[int, Field(ge=1)]
Phase = Literal["queued", "running", "ended"]
POLL_SECONDS = 0.05
ASK_SECONDS = 2.0  # between two questions to a scheduler
WAIT_SECONDS = 10.0  # a job waits, or the scheduler is silent, before that is shown
UNKNOWN_SECONDS = 30.0  # a scheduler may not list a new job
CANCEL_SECONDS = 15.0  # for jobs to leave when the run is over, before they are cancelled
END_SECONDS = 120.0  # after which nobody waits for them
SUBMITTED = "submitted.json"
LOGGER = logging.getLogger("paribus")
NAME = re.compile(r"paribus-[0-9a-f]{12}-[1-9][0-9]{0,5}")


class Retrying(Options):
    """Options that every backend has."""

    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a trial is begun again whose worker died; the first run registers it."""


class JobOptions(Retrying):
    """Options that every scheduler has."""

    jobs: Count = 16
    """The largest number of jobs that run at the same time."""
    workers: Count | None = None
    """Trials at the same time in a job; by default one for each GPU or core that it asks for."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """Number of GPUs for each job."""
    cpus: Count | None = None
    """Number of cores for each job; by default one for each worker."""


@dataclass(frozen=True)
class JobState:
    """State of a job, as its scheduler reports it.

    Attributes:
        id: the job's id, as users type it.
        phase: "queued", "running", or "ended" if the job will not run again by itself.
        words: the scheduler's name for the state, and its reason.
        node: the node on which the job runs.
        is_cancelled: whether a user cancelled the job.
        doing: the tasks that the job has claimed.
        log: the last lines logged by a job that ended before the run did, last line first.
    """

    id: str
    phase: Phase
    words: str = ""
    node: str = ""
    is_cancelled: bool = False
    doing: str = ""
    log: tuple[str, ...] = ()


States = Mapping[tuple[str, int], JobState]
"""State of each job, keyed by submission name and job number."""


class Backend(ABC):
    """Base class of backends, which submit arrays of jobs under unique names and follow them.

    Attributes:
        name: the name that users type.
        options: the options that the user set.
        is_here: whether workers run on this machine and end with the command.
        submissions: the number of jobs in each submission of the run, keyed by name.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Retrying]] = JobOptions
    is_here = False

    def __init__(self, options: Any) -> None:
        self.options = options
        self.submissions: dict[str, int] = {}

    @abstractmethod
    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit a job for each command.

        Args:
            name: the name of the submission.
            commands: the command lines of the jobs.
            scratch: a folder for logs and the scheduler's files.

        Raises ParibusError with the scheduler's message.
        """

    @abstractmethod
    def states(self, names: Collection[str]) -> States:
        """Query the scheduler once, and return the states of the jobs in these submissions."""

    @abstractmethod
    def cancel(self, names: Collection[str]) -> None:
        """Cancel all queued or running jobs in these submissions, and no others."""

    def workers(self, devices_per_trial: int) -> int | None:
        """Return how many trials a worker runs concurrently, or None to let the worker decide.

        The default for a job is its number of GPUs (or cores) divided by the devices per trial.
        Raises ParibusError if a job has fewer GPUs than a trial needs.
        """
        options = self.options
        if options.gpus and devices_per_trial > options.gpus:
            raise ParibusError(
                f"backend '{self.name}': resources.devices_per_trial = {devices_per_trial}, but "
                f"each job has gpus = {options.gpus}; set gpus = {devices_per_trial}, or use fewer "
                "devices"
            )
        return options.workers or max((options.gpus or options.cpus or 1) // devices_per_trial, 1)

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> None:
        """Submit jobs, or use those that an earlier command submitted."""
        self._queue = queue
        workers = self.workers(devices_per_trial) or n_trials
        self._n_jobs = min(getattr(self.options, "jobs", 1), math.ceil(n_trials / workers))
        self._asked, self._submitted, self._n_ends = -math.inf, time.monotonic(), 0
        self._first_seen: dict[str, float] = {}
        self.submissions = read_submissions(queue)
        if not self.submissions:
            self._submit()

    def check(self) -> None:
        """Submit new jobs if all have ended. Raises ParibusError if this happens too often."""
        states = self._ask()
        if states == {} and time.monotonic() - self._submitted >= UNKNOWN_SECONDS:
            states = {("", 0): JobState("", "ended", "gone from the queue")}
        if not states or any(state.phase != "ended" for state in states.values()):
            return
        if self._queue.is_over:
            return
        self._n_ends += 1
        last = next(iter(states.values()))
        if last.is_cancelled:
            message = f"job {last.id} was cancelled; run again to continue"
            raise ParibusError(message, code="unfinished")
        log = tail(log_of(self._queue, list(self.submissions)[-1], 0))[:1]
        words = f"all workers ended ({last.words})" + "".join(f": {line}" for line in log)
        if self._n_ends > self.options.retries + 1:
            has_begun = any(True for _ in self._queue.events({}))
            hint = "" if has_begun else f"; does every machine see {self._queue.path}?"
            raise ParibusError(
                f"{words}{hint}; finished trials are kept: run again to continue", code="system"
            )
        LOGGER.warning("%s; new ones are started", words)
        self._submit()

    def leave(self, *, is_interrupted: bool) -> None:
        """Wait until all jobs have ended, and cancel those that take too long.

        After Ctrl-C, jobs in a scheduler continue to run.
        """
        if is_interrupted and not self.is_here:
            LOGGER.warning(
                "jobs continue without this command; cancel them with `paribus cancel %s`",
                self._queue.path.parent,
            )
            return
        began, is_cancelled = time.monotonic(), False
        while (waited := time.monotonic() - began) < END_SECONDS:
            if (is_interrupted or waited > CANCEL_SECONDS) and not is_cancelled:
                self.cancel(list(self.submissions))
                is_cancelled = True
            states = self._ask()
            if states is not None and all(state.phase == "ended" for state in states.values()):
                return
            time.sleep(POLL_SECONDS)

    def _submit(self) -> None:
        token = self._queue.read_order().token
        name = f"paribus-{token}-{len(self.submissions) + 1}"
        shared = [path or os.getcwd() for path in sys.path if path not in OWN_FOLDERS]
        # -P: the current folder may be a stranger's, and is searched only if this process does.
        worker = [
            "/usr/bin/env",
            f"PYTHONPATH={os.pathsep.join(shared)}",
            sys.executable,
            "-P",
            "-m",
            "paribus.runs.worker",
        ]
        worker += [str(self._queue.path), "--token", token, "--name"]
        scratch = log_of(self._queue, name, 0).parent
        scratch.mkdir(parents=True, exist_ok=True)
        self.submit(name, [[*worker, f"{name}-{k}"] for k in range(self._n_jobs)], scratch)
        self.submissions[name] = self._n_jobs
        if not self.is_here:
            write_bytes(self._queue.path / SUBMITTED, json.dumps(self.submissions).encode())
        self._submitted = time.monotonic()

    def _ask(self) -> States | None:
        """Return the scheduler's report; None if it does not answer or was asked a moment ago."""
        now = time.monotonic()
        if not self.is_here and now - self._asked < ASK_SECONDS:
            return None
        self._asked = now
        try:
            states = self.states(list(self.submissions))
            words = {state.words for state in states.values() if state.phase == "queued"}
            lines = [f"jobs wait ({reason})" for reason in words]
        except ParibusError as error:
            if error.code == "not_installed":
                raise
            states, lines = None, [f"{error}; it is asked again"]
        for line in lines:
            if now - self._first_seen.setdefault(line, now) >= WAIT_SECONDS:
                self._first_seen[line] = math.inf  # it is said once
                LOGGER.warning("%s", line)
        return states


def log_of(queue: Queue, name: str, number: int) -> Path:
    """Return the file with a job's standard error; it may not exist yet."""
    return queue.path / "scheduler" / name / f"{number}.log"


def read_submissions(queue: Queue) -> dict[str, int]:
    """Return the number of jobs in each submission, keyed by name.

    Raises ParibusError if a name was not created by paribus, because `cancel` ends jobs by name.
    """
    path = queue.path / SUBMITTED
    if not is_regular(path):
        return {}
    submissions = read_json(path)
    if not (isinstance(submissions, dict) and all(map(NAME.fullmatch, submissions))):
        raise ParibusError(f"{path} was changed; remove {queue.path} and run again", code="changed")
    return {name: int(n) for name, n in submissions.items()}
