"""Backends whose workers are jobs of a scheduler: they are queued, and outlive who submitted them.

A job is a command line (`paribus.engine.execution.jobs.job`), which reads its order, writes what
happens, and is fenced, all in files of a folder that every machine sees; so there is no pipe that
could break. What a scheduler has to do is `submit`, `states` and `cancel`. Several devices for one
trial are a matter of the command line that it runs, and of what `options` ask for.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paribus.engine.execution.backends.protocol import Backend, Hear, Retrying, WorkerProcess
from paribus.errors import ParibusError

Count = Annotated[int, Field(ge=1)]
Phase = Literal["queued", "running", "requeued", "ended"]
JOBS = 16


class JobOptions(Retrying):
    """Options of every backend of jobs: how trials are packed into them.

    Thousands of small trials are as many jobs as `jobs` says, each of which trains its part one
    after the other.
    """

    jobs: Count = JOBS
    """How many run at the same time; and how many there are, unless `trials_per_job` makes more."""
    trials_per_job: Count | None = None
    """By default as many as `jobs` leaves to each."""
    workers: Count | None = None
    """Worker processes in a job; by default one for each GPU or core that it asks for."""

    @model_validator(mode="before")
    @classmethod
    def _require_no_empty_text(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Refuse what a scheduler would have words of its own for, or take for something else."""
        for key, value in given.items():
            parts = value.items() if isinstance(value, dict) else ()
            for name, one in ((key, value), *((f"{key}.{part}", of) for part, of in parts)):
                if isinstance(one, str) and not one.strip():
                    raise ValueError(f"{name} = {one!r} is empty; state a value, or leave it out")
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

        It is called once for a name. Raises ParibusError in the scheduler's words.
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
        """Return how many workers a job has; None leaves it to the machine that it runs on."""
        return self.options.workers

    def start(self, hear: Hear) -> WorkerProcess:
        """Start a worker that answers at once, for what is asked live: costs, memory, speed.

        Raises ParibusError where the backend has no pipe to a machine.
        """
        raise ParibusError(
            f"backend '{self.name}' runs and registers studies; what measures a machine runs on "
            "it: leave --backend out there"
        )

    def default_workers(self, device: str, devices: int) -> int:
        """Return one worker: what is asked live, such as the cost of a study, asks one."""
        return 1

    def n_jobs(self, n_tasks: int, workers: int | None = None) -> int:
        """Return how many jobs, of so many workers each, do so many tasks."""
        if of_each := self.options.trials_per_job:
            return math.ceil(n_tasks / of_each)
        return min(self.options.jobs, math.ceil(n_tasks / (workers or 1)))
