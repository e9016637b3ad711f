"""Base class of backends, which run workers as jobs.

Each job runs a worker, which runs tasks until none are left. A backend submits jobs, reports their
states and cancels them. Jobs wait in the scheduler's queue and outlive the command that submitted
them. If all jobs end before the run is finished, the current or the next command submits new ones.
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
    """Options shared by all backends."""

    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """Maximum number of times that a task is restarted after its worker has died."""


class JobOptions(Retrying):
    """Options shared by all backends with a scheduler."""

    jobs: Count = 16
    """Maximum number of concurrent jobs."""
    workers: Count | None = None
    """Number of concurrent trials per job; by default one per requested GPU or CPU core."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """Number of GPUs per job."""
    cpus: Count | None = None
    """Number of CPU cores per job; by default one per concurrent trial."""


@dataclass(frozen=True)
class JobState:
    """State of a job, as reported by its scheduler.

    Attributes:
        id: job id, as used on the command line.
        phase: "queued", "running", or "ended" if the job will not restart by itself.
        words: the scheduler's name of the state, with the reason.
        node: node on which the job runs.
        is_cancelled: whether a user cancelled the job.
        doing: comma-separated ids of the tasks that the job has claimed.
        log: last log lines, in reverse order, of a job that ended before the run was finished.
    """

    id: str
    phase: Phase
    words: str = ""
    node: str = ""
    is_cancelled: bool = False
    doing: str = ""
    log: tuple[str, ...] = ()


States = Mapping[tuple[str, int], JobState]
"""State of each job, keyed by (submission name, job number)."""


class Backend(ABC):
    """Base class of backends, which submit arrays of jobs under unique names and monitor them.

    Attributes:
        name: name on the command line.
        options: options set by the user.
        is_here: whether workers run on this machine and stop with the command.
        submissions: number of jobs in each submission of the run, keyed by submission name.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Retrying]] = JobOptions
    is_here = False

    def __init__(self, options: Any) -> None:
        self.options = options
        self.submissions: dict[str, int] = {}

    @abstractmethod
    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit one job per command.

        Args:
            name: name of the submission.
            commands: command lines of the jobs.
            scratch: folder for logs and the scheduler's files.

        Raises ParibusError with the scheduler's message if submission fails.
        """

    @abstractmethod
    def states(self, names: Collection[str]) -> States:
        """Query the scheduler once, and return the job states of the named submissions."""

    @abstractmethod
    def cancel(self, names: Collection[str]) -> None:
        """Cancel all queued and running jobs of the named submissions, and no others."""

    def workers(self, devices_per_trial: int) -> int | None:
        """Return the number of concurrent trials per worker, or None to let the worker decide.

        By default, this is the number of GPUs (or cores) per job divided by the devices per trial.
        Raises ParibusError if a job has fewer GPUs than a trial needs.
        """
        options = self.options
        if options.gpus and devices_per_trial > options.gpus:
            raise ParibusError(
                f"backend '{self.name}': resources.devices_per_trial = {devices_per_trial}, but "
                f"each job has gpus = {options.gpus}; set gpus = {devices_per_trial}, or lower "
                "devices_per_trial"
            )
        return options.workers or max((options.gpus or options.cpus or 1) // devices_per_trial, 1)

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> None:
        """Submit jobs, or monitor those that an earlier command submitted."""
        self._queue = queue
        workers = self.workers(devices_per_trial) or n_trials
        self._n_jobs = min(getattr(self.options, "jobs", 1), math.ceil(n_trials / workers))
        self._asked, self._submitted, self._n_ends = -math.inf, time.monotonic(), 0
        self._first_seen: dict[str, float] = {}
        self.submissions = read_submissions(queue)
        if not self.submissions:
            self._submit()

    def check(self) -> None:
        """Submit new jobs if all have ended, or raise ParibusError after too many attempts."""
        states = self._ask()
        if states == {} and time.monotonic() - self._submitted >= UNKNOWN_SECONDS:
            states = {("", 0): JobState("", "ended", "no longer in the queue")}
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
            hint = "" if has_begun else f"; make {self._queue.path} visible to every machine"
            raise ParibusError(
                f"{words}{hint}; run again to continue (finished trials are kept)", code="system"
            )
        LOGGER.warning("%s; submitting new jobs", words)
        self._submit()

    def leave(self, *, is_interrupted: bool) -> None:
        """Wait until all jobs have ended, and cancel those that take too long.

        If interrupted by Ctrl-C, return at once and let scheduled jobs continue to run.
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
        """Query job states, or return None if the scheduler fails or was queried recently."""
        now = time.monotonic()
        if not self.is_here and now - self._asked < ASK_SECONDS:
            return None
        self._asked = now
        try:
            states = self.states(list(self.submissions))
            words = {state.words for state in states.values() if state.phase == "queued"}
            lines = [f"jobs are queued ({reason})" for reason in words]
        except ParibusError as error:
            if error.code == "not_installed":
                raise
            states, lines = None, [f"{error}; retrying"]
        for line in lines:
            if now - self._first_seen.setdefault(line, now) >= WAIT_SECONDS:
                self._first_seen[line] = math.inf  # it is said once
                LOGGER.warning("%s", line)
        return states


def log_of(queue: Queue, name: str, number: int) -> Path:
    """Return the path of a job's stderr log, which may not exist yet."""
    return queue.path / "scheduler" / name / f"{number}.log"


def read_submissions(queue: Queue) -> dict[str, int]:
    """Return the number of jobs in each submission, keyed by submission name.

    Raises ParibusError if a name was not created by paribus, because `cancel` selects jobs by name.
    """
    path = queue.path / SUBMITTED
    if not is_regular(path):
        return {}
    submissions = read_json(path)
    if not (isinstance(submissions, dict) and all(map(NAME.fullmatch, submissions))):
        raise ParibusError(f"{path} was changed; remove {queue.path} and run again", code="changed")
    return {name: int(n) for name, n in submissions.items()}
