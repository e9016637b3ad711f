"""Executors whose workers are jobs of a scheduler: they are queued, and outlive the command.

A job is the command line of a worker. What a scheduler has to do is `submit`, `states` and
`cancel`. Jobs that have ended before the run is over are submitted again; that happens too when the
command is given once more.
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

from pydantic import Field, model_validator

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.runs.executors import Backend, Retrying
from paribus.runs.queue import Queue
from paribus.search_path import shared_folders
from paribus.untrusted_io import is_regular, read_json

Count = Annotated[int, Field(ge=1)]
Phase = Literal["queued", "running", "requeued", "ended"]
JOBS = 16
ASK_SECONDS = 2.0  # between two questions to the scheduler, at least
WAIT_SECONDS = 10.0  # that a job may wait before the reason is told
UNKNOWN_SECONDS = 30.0  # a scheduler may not know yet what it was just given
SILENT_SECONDS = 600.0  # that a scheduler may fail to answer, as those do that are restarted
END_SECONDS = 300.0  # for jobs to leave when the run is over
CANCEL_SECONDS = 15.0  # of which they may take so long to leave by themselves
TAIL_BYTES = 4096
SUBMITTED = "submitted.json"
NAME = re.compile(r"paribus-[0-9a-f]{12}-[1-9][0-9]{0,5}")


class JobOptions(Retrying):
    """Options of every backend of jobs."""

    jobs: Count = JOBS
    """How many run at the same time, at most."""
    trials_per_job: Count | None = None
    """State it to have a job for so many trials."""
    workers: Count | None = None
    """Trials at the same time in a job; by default one for each GPU or core that it asks for."""

    @model_validator(mode="before")
    @classmethod
    def _require_no_empty_text(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Refuse what a scheduler would have words of its own for, or take for something else."""
        for key, value in given.items():
            parts = value.items() if isinstance(value, dict) else ()
            for name, text in ((key, value), *((f"{key}.{part}", of) for part, of in parts)):
                if isinstance(text, str) and not text.strip():
                    raise ValueError(f"{name} = {text!r} is empty; state a value, or leave it out")
        return given


@dataclass(frozen=True)
class JobState:
    """What a scheduler says of a job.

    Attributes:
        id: as users type it.
        phase: "ended" is whatever will not run again by itself.
        words: the scheduler's own: its name of the state, and the reason.
        node: where it runs.
        is_cancelled: whether a person ended it.
        is_held: whether it waits until somebody lets it go on.
    """

    id: str
    phase: Phase
    words: str = ""
    node: str = ""
    is_cancelled: bool = False
    is_held: bool = False


class JobBackend(Backend):
    """Submits jobs. One submission is an array of them, under a name that is never used again."""

    options: Any  # `JobOptions`, or what inherits from it

    @abstractmethod
    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit a job for each command; `scratch` is a folder for what the scheduler writes.

        Raises ParibusError in the scheduler's words.
        """

    @abstractmethod
    def states(self, names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        """Ask the scheduler once; {(name, which of its jobs): state} of those that it knows."""

    @abstractmethod
    def cancel(self, names: Collection[str]) -> None:
        """End all jobs of these names, queued or running, and no other ones."""

    def log(self, scratch: Path, number: int) -> Path | None:
        """Return what a job of that submission printed last; None where it printed nothing yet."""
        return None

    def workers(self, devices_per_trial: int = 1) -> int | None:
        """Return how many trials a job runs at the same time; None leaves it to the machine."""
        return self.options.workers

    def n_jobs(self, n_trials: int, workers: int | None = None) -> int:
        """Return how many jobs, of so many trials at the same time each, do so many trials."""
        if of_each := self.options.trials_per_job:
            return min(math.ceil(n_trials / of_each), max(n_trials, 1))
        return min(self.options.jobs, math.ceil(max(n_trials, 1) / (workers or 1)))

    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> Jobs:
        """Submit jobs, or find those that an earlier command has submitted."""
        return Jobs(self, queue, n_trials, devices_per_trial)


@dataclass(frozen=True)
class Submission:
    """One array of jobs."""

    name: str
    jobs: int


class Jobs:
    """The jobs of a run, seen from the command that follows it. They go on without it."""

    def __init__(
        self, backend: JobBackend, queue: Queue, n_trials: int, devices_per_trial: int
    ) -> None:
        self._backend, self._queue = backend, queue
        self._workers = backend.workers(devices_per_trial)
        self._n_jobs = backend.n_jobs(n_trials, self._workers)
        self._asked, self._answered = -ASK_SECONDS, time.monotonic()
        self._submitted_at = time.monotonic()
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
            self._submitted_at = time.monotonic()
            return
        if time.monotonic() - self._submitted_at < UNKNOWN_SECONDS and not states:
            return
        last = next(iter(states.values()), None)
        if last is not None and last.is_cancelled:
            raise ParibusError(f"job {last.id} was cancelled; run again to continue")
        self._resubmissions += 1
        words = last.words if last else "gone from the queue"
        said = self._last_line()
        if self._resubmissions > self._backend.retries:
            unseen = "" if self._known_events() else f"; does every machine see {self._queue.path}?"
            raise ParibusError(
                f"the jobs ended ({words}) before the run{f': {said}' if said else ''}{unseen}; "
                "finished trials are kept: run again to continue"
            )
        logging.getLogger("paribus").warning(
            "the jobs ended (%s)%s; others are submitted", words, f": {said}" if said else ""
        )
        self._submit()

    def stop(self) -> None:
        """Jobs go on without the command, unless the run has failed."""
        if self._queue.failure() is not None:
            self._backend.cancel([one.name for one in self.submissions])
            return
        logging.getLogger("paribus").warning(
            "jobs go on without this command; `paribus cancel %s` ends them",
            self._queue.path.parent,
        )

    def leave(self) -> None:
        """Wait until all jobs have left; those that do not are cancelled."""
        names, began, is_cancelled = [one.name for one in self.submissions], time.monotonic(), False
        while (waited := time.monotonic() - began) < END_SECONDS:
            time.sleep(max(self._asked + ASK_SECONDS - time.monotonic(), 0))
            states = self._states()
            if states is not None and all(one.phase == "ended" for one in states.values()):
                return
            if waited > CANCEL_SECONDS and not is_cancelled:  # such as one that is queued again
                self._backend.cancel(names)
                is_cancelled = True

    def _submit(self) -> None:
        order = self._queue.read_order()
        name = f"paribus-{order.token}-{len(self.submissions) + 1}"
        commands = [command(self._queue, order.token, name, k) for k in range(self._n_jobs)]
        scratch = scratch_folder(self._queue, name)
        scratch.mkdir(parents=True, exist_ok=True)
        self._backend.submit(name, commands, scratch)
        self.submissions.append(Submission(name, self._n_jobs))
        about = [[one.name, one.jobs] for one in self.submissions]
        write_bytes(self._queue.path / SUBMITTED, json.dumps(about).encode())
        self._submitted_at = time.monotonic()

    def _states(self) -> Mapping[tuple[str, int], JobState] | None:
        """Return what the scheduler says; None if it does not answer for a while."""
        self._asked = time.monotonic()
        try:
            states = self._backend.states([one.name for one in self.submissions])
        except ParibusError as error:
            if time.monotonic() - self._answered >= SILENT_SECONDS:
                raise
            if not self._is_silent:
                logging.getLogger("paribus").warning("%s; it is asked again", error)
            self._is_silent = True
            return None
        self._answered, self._is_silent = time.monotonic(), False
        return states

    def _warn_about_waiting(self, states: Mapping[tuple[str, int], JobState]) -> None:
        """Say once why jobs wait, in the scheduler's words."""
        log = logging.getLogger("paribus").warning
        waiting = Counter(
            state.words for state in states.values() if state.phase in ("queued", "requeued")
        )
        now = time.monotonic()
        for words, n in waiting.items():
            since = self._waiting.setdefault(words, now)
            if 0 <= now - since >= WAIT_SECONDS:
                self._waiting[words] = math.inf
                log("%s (%s)", "1 job waits" if n == 1 else f"{n} jobs wait", words)

    def _release_claims(self, states: Mapping[tuple[str, int], JobState]) -> None:
        """Give back what jobs had claimed that have ended."""
        ended = {f"{name}-{k}" for (name, k), state in states.items() if state.phase == "ended"}
        for task, record in self._queue.claims().items():
            if record.get("worker") in ended:
                self._queue.release(task, died="a job ended")

    def _known_events(self) -> bool:
        return any(True for _ in self._queue.events({}))

    def _last_line(self) -> str:
        one = self.submissions[-1]
        log = self._backend.log(scratch_folder(self._queue, one.name), 0)
        return next(iter(tail(log)), "")


def command(queue: Queue, token: str, name: str, number: int) -> list[str]:
    """Return the command line of a job."""
    searched = os.pathsep.join(shared_folders())
    return [
        *("env", f"PYTHONPATH={searched}", sys.executable, "-P", "-m", "paribus.runs.worker"),
        *(str(queue.path), "--name", f"{name}-{number}", "--token", token),
    ]


def scratch_folder(queue: Queue, name: str) -> Path:
    """Return the folder of a scheduler's own files for one submission."""
    return queue.path / "scheduler" / name


def read_submissions(queue: Queue) -> list[Submission]:
    """Return what was submitted for a queue.

    Raises ParibusError if a name is not of the form that we give: `cancel` ends jobs by name.
    """
    path = queue.path / SUBMITTED
    if not is_regular(path):
        return []
    try:
        submissions = [Submission(str(name), int(n)) for name, n in read_json(path)]
    except (TypeError, ValueError):
        submissions = []
    if not submissions or not all(NAME.fullmatch(one.name) for one in submissions):
        raise ParibusError(f"{path} was changed; remove {queue.path} and run again")
    return submissions


def tail(path: Path | None) -> list[str]:
    """Return the last lines of a log, the last one first; none where there is no log."""
    try:
        with open(path or "", "rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in reversed(lines) if line.strip()]
