"""Executors whose workers are jobs of a scheduler: they wait in its queue and outlive the command.

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
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
Phase = Literal["queued", "running", "requeued", "ended"]
JOBS = 16
ASK_SECONDS = 2.0  # between two questions to the scheduler
WAIT_SECONDS = 10.0  # a job waits before the reason is shown
UNKNOWN_SECONDS = 30.0  # a scheduler may not list a new job
SILENT_SECONDS = 600.0  # a scheduler may not answer, such as while it restarts
END_SECONDS = 300.0  # for jobs to leave when the run is over
CANCEL_SECONDS = 15.0  # after which they are cancelled
SUBMITTED = "submitted.json"
NAME = re.compile(r"paribus-[0-9a-f]{12}-[1-9][0-9]{0,5}")


class JobOptions(Retrying):
    """Options of every backend of jobs."""

    jobs: Count = JOBS
    """How many run at the same time, at most."""
    workers: Count | None = None
    """Trials at the same time in a job; by default one for each GPU or core that it asks for."""


@dataclass(frozen=True)
class JobState:
    """What a scheduler reports of a job.

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
    """Submits arrays of jobs, each under a name that is never used again."""

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

    def log(self, scratch: Path, number: int) -> Path | None:
        """Return the file with a job's standard error; None if there is none yet."""
        return None

    def workers(self, devices_per_trial: int = 1) -> int | None:
        """Return how many trials a job runs at the same time; None leaves it to the machine."""
        return self.options.workers

    def n_jobs(self, n_trials: int, workers: int | None = None) -> int:
        """Return how many jobs to submit for a number of trials."""
        return min(self.options.jobs, math.ceil(max(n_trials, 1) / (workers or 1)))

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> Jobs:
        """Submit jobs, or find those that an earlier command has submitted."""
        return Jobs(self, queue, n_trials, devices_per_trial)


class Jobs:
    """The jobs of a run, seen from the command that follows it. They do not depend on it.

    Attributes:
        submissions: the number of jobs of each submission, by name.
    """

    def __init__(
        self, backend: JobBackend, queue: Queue, n_trials: int, devices_per_trial: int
    ) -> None:
        self._backend, self._queue = backend, queue
        self._n_jobs = backend.n_jobs(n_trials, backend.workers(devices_per_trial))
        self._asked = -ASK_SECONDS
        self._answered = self._last_alive = time.monotonic()
        self._is_silent = False
        self._resubmissions = 0
        self._waiting: dict[str, float] = {}
        self.submissions = read_submissions(queue)
        if not self.submissions:
            self._submit()

    def check(self) -> None:
        """Ask the scheduler, and submit jobs again if all have ended. Raises ParibusError."""
        if time.monotonic() - self._asked < ASK_SECONDS:
            return
        states = self._states()
        if states is None or self._queue.is_over:
            return
        self._warn_about_waiting(states)
        self._release_claims(states)
        if any(state.phase != "ended" for state in states.values()):
            self._last_alive = time.monotonic()
        elif states or time.monotonic() - self._last_alive >= UNKNOWN_SECONDS:
            self._submit_again(next(iter(states.values()), None))

    def stop(self) -> None:
        """Cancel the jobs if the run has failed; otherwise they go on."""
        if self._queue.failure() is not None:
            self._backend.cancel(list(self.submissions))
            return
        logging.getLogger("paribus").warning(
            "jobs go on without this command; `paribus cancel %s` ends them",
            self._queue.path.parent,
        )

    def leave(self) -> None:
        """Wait until all jobs have left; cancel those that do not."""
        began, is_cancelled = time.monotonic(), False
        while (waited := time.monotonic() - began) < END_SECONDS:
            time.sleep(max(self._asked + ASK_SECONDS - time.monotonic(), 0))
            states = self._states()
            if states is not None and all(state.phase == "ended" for state in states.values()):
                return
            if waited > CANCEL_SECONDS and not is_cancelled:  # such as one that is queued again
                self._backend.cancel(list(self.submissions))
                is_cancelled = True

    def _submit(self) -> None:
        token = self._queue.read_order().token
        name = f"paribus-{token}-{len(self.submissions) + 1}"
        commands = [command(self._queue, token, name, k) for k in range(self._n_jobs)]
        scratch = scratch_folder(self._queue, name)
        scratch.mkdir(parents=True, exist_ok=True)
        self._backend.submit(name, commands, scratch)
        self.submissions[name] = self._n_jobs
        write_bytes(self._queue.path / SUBMITTED, json.dumps(self.submissions).encode())
        self._last_alive = time.monotonic()

    def _submit_again(self, last: JobState | None) -> None:
        """Submit jobs after all have ended. Raises ParibusError if that happened too often."""
        if last is not None and last.is_cancelled:
            raise ParibusError(f"job {last.id} was cancelled; run again to continue")
        self._resubmissions += 1
        state = last.words if last else "gone from the queue"
        log = self._backend.log(scratch_folder(self._queue, list(self.submissions)[-1]), 0)
        reason = "".join(f": {line}" for line in tail(log)[:1])
        if self._resubmissions > self._backend.retries:
            has_begun = any(True for _ in self._queue.events({}))
            hint = "" if has_begun else f"; does every machine see {self._queue.path}?"
            raise ParibusError(
                f"the jobs ended ({state}) before the run{reason}{hint}; "
                "finished trials are kept: run again to continue"
            )
        logging.getLogger("paribus").warning(
            "the jobs ended (%s)%s; others are submitted", state, reason
        )
        self._submit()

    def _states(self) -> States | None:
        """Return what the scheduler reports; None while it does not answer."""
        self._asked = time.monotonic()
        try:
            states = self._backend.states(list(self.submissions))
        except ParibusError as error:
            if time.monotonic() - self._answered >= SILENT_SECONDS:
                raise
            if not self._is_silent:
                logging.getLogger("paribus").warning("%s; it is asked again", error)
            self._is_silent = True
            return None
        self._answered, self._is_silent = time.monotonic(), False
        return states

    def _warn_about_waiting(self, states: States) -> None:
        """Warn once why jobs wait, in the scheduler's words."""
        waiting = Counter(
            state.words for state in states.values() if state.phase in ("queued", "requeued")
        )
        now = time.monotonic()
        for words, n in waiting.items():
            since = self._waiting.setdefault(words, now)
            if 0 <= now - since >= WAIT_SECONDS:
                self._waiting[words] = math.inf
                jobs = "1 job waits" if n == 1 else f"{n} jobs wait"
                logging.getLogger("paribus").warning("%s (%s)", jobs, words)

    def _release_claims(self, states: States) -> None:
        """Release the claims of jobs that have ended."""
        ended = {f"{name}-{k}" for (name, k), state in states.items() if state.phase == "ended"}
        for task, record in self._queue.claims().items():
            if record.get("worker") in ended:
                self._queue.release(task, died="a job ended")


def workers_per_job(backend: JobBackend, devices_per_trial: int) -> int:
    """Return one worker for the devices of a trial: GPUs of a job, or else its cores.

    Raises ParibusError if a job has fewer GPUs than a trial takes.
    """
    options = backend.options
    if options.gpus and devices_per_trial > max(options.gpus, 1):
        raise ParibusError(
            f"backend '{backend.name}': resources.devices_per_trial = {devices_per_trial}, and "
            f"each job has gpus = {options.gpus:g}; set gpus = {devices_per_trial}, or use fewer "
            "devices"
        )
    devices = int(options.gpus or options.cpus or 1)
    return options.workers or max(devices // devices_per_trial, 1)


def command(queue: Queue, token: str, name: str, number: int) -> list[str]:
    """Return the command line of a job."""
    path = os.pathsep.join(shared_folders())
    worker = ["env", f"PYTHONPATH={path}", sys.executable, "-P", "-m", "paribus.runs.worker"]
    return [*worker, str(queue.path), "--name", f"{name}-{number}", "--token", token]


def scratch_folder(queue: Queue, name: str) -> Path:
    """Return the folder for a scheduler's files of one submission."""
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
        raise ParibusError(f"{path} was changed; remove {queue.path} and run again")
    return {name: int(n) for name, n in submissions.items()}
