"""`ray`: jobs of a Ray cluster, where there is no SLURM, by Ray's own job submission.

A job is a command line that Ray starts on a node with room for it; it goes on without us. All nodes
share the results folder and its scratch folder. Ray has no queue that brings a job back after its
node was lost: whoever follows the run submits its trials again, and so does the next `paribus run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from paribus.errors import ParibusError
from paribus.runs.executors import backend
from paribus.runs.executors.jobs import JobBackend, JobOptions, JobState, Phase

PHASES: dict[str, Phase] = {"PENDING": "queued", "RUNNING": "running"}


class RayOptions(JobOptions):
    """Where the cluster is, and what each job asks of it."""

    address: str | None = None
    """Of its dashboard, such as "http://head:8265"; by default RAY_ADDRESS, or a cluster here."""
    cpus: Annotated[float, Field(ge=0)] | None = None
    """Cores of a job; by default one for each worker."""
    gpus: Annotated[float, Field(ge=0)] = 0
    """Of each job; it has a worker for each."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Ray's own resources, by name."""


@backend("ray", options=RayOptions)
class Ray(JobBackend):
    """Jobs of Ray."""

    _known: Any = None

    def workers(self, devices_per_trial: int = 1) -> int | None:
        """Return one for the devices of a trial: GPUs, or else cores.

        Raises ParibusError where a job, which is on one machine, has too few GPUs.
        """
        asked: RayOptions = self.options
        if asked.gpus and devices_per_trial > max(asked.gpus, 1):
            raise ParibusError(
                f"backend 'ray': a trial takes {devices_per_trial} GPUs of one machine, and gpus = "
                f"{asked.gpus:g} of each job; state gpus = {devices_per_trial}, or fewer devices"
            )
        devices = int(asked.gpus) or int(asked.cpus or 1) or 1
        return asked.workers or max(devices // devices_per_trial, 1)

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit a job for each command; its name is its id, so that none can be there twice."""
        for number, command in enumerate(commands):
            log = shlex.quote(str(self._log(scratch, number)))
            self._asked(
                "submit_job",
                entrypoint=f"exec {shlex.join(command)} 2> {log}",
                submission_id=f"{name}_{number}",
                entrypoint_num_cpus=self.options.cpus or self.workers(),
                entrypoint_num_gpus=self.options.gpus,
                entrypoint_resources=self.options.resources or None,
            )

    def states(self, names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        """Ask the cluster once."""
        found = {}
        for job in self._asked("list_jobs"):
            name, _, number = str(job.submission_id).rpartition("_")
            if name in names and number.isdecimal():
                state = getattr(job.status, "value", str(job.status))
                words = " ".join(f"{state}: {job.message}".split())
                node = (job.driver_node_id or "")[:12]
                phase = PHASES.get(state, "ended")
                found[name, int(number)] = JobState(
                    job.submission_id, phase, words, node, is_cancelled=state == "STOPPED"
                )
        return found

    def cancel(self, names: Collection[str]) -> None:
        """Stop those that run or wait; each writes its checkpoints first."""
        for (name, number), state in self.states(names).items():
            if state.phase != "ended":
                self._asked("stop_job", f"{name}_{number}")

    def log(self, scratch: Path, number: int) -> Path | None:
        """Return what the job wrote to its standard error."""
        return self._log(scratch, number)

    def _log(self, scratch: Path, number: int) -> Path:
        return scratch / f"{number}.log"

    def _asked(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Return what the cluster answers. Raises ParibusError in its words."""
        try:
            from ray.job_submission import (  # pyright: ignore[reportMissingImports]
                JobSubmissionClient,
            )
        except ImportError:
            raise ParibusError(
                "backend 'ray' submits by Ray, which is not installed; pip install 'paribus[ray]'"
            ) from None
        try:
            if self._known is None:
                self._known = JobSubmissionClient(self.options.address)
            return getattr(self._known, method)(*arguments, **named)
        except Exception as error:  # in whatever class, these are Ray's words
            words = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
            raise ParibusError(
                f"backend 'ray': {words.strip() or type(error).__name__}; run again to continue"
            ) from None
