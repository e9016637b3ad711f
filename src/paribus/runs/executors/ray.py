"""Backend `ray`, which submits jobs to a Ray cluster.

A job is a command line that Ray starts on a node with enough free resources. All nodes share the
results folder. Ray does not restart a job after losing its node. The command that monitors the run
submits new jobs instead, and so does the next `paribus run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from paribus.errors import ParibusError
from paribus.runs.executors.jobs import Backend, JobOptions, JobState, Phase, States

PHASES: dict[str, Phase] = {"PENDING": "queued", "RUNNING": "running"}


class RayOptions(JobOptions):
    """Options of the backend `ray`."""

    address: str | None = None
    """Dashboard address, such as "http://head:8265"; by default RAY_ADDRESS or a local cluster."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Amounts of Ray's custom resources per job, keyed by name."""


class Ray(Backend):
    """Backend that submits jobs to a Ray cluster."""

    name = "ray"
    Options = RayOptions
    _client: Any = None

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit one job per command, with job ids that start with `name`."""
        for number, command in enumerate(commands):
            log = shlex.quote(str(scratch / f"{number}.log"))
            self._call(
                "submit_job",
                entrypoint=f"exec {shlex.join(command)} 2> {log}",
                submission_id=f"{name}_{number}",
                entrypoint_num_cpus=self.options.cpus or self.workers(1),
                entrypoint_num_gpus=self.options.gpus,
                entrypoint_resources=self.options.resources or None,
            )

    def states(self, names: Collection[str]) -> States:
        """Query the cluster once, and return the states of the jobs."""
        states = {}
        for job in self._call("list_jobs"):
            name, _, number = str(job.submission_id).rpartition("_")
            if name in names and number.isdecimal():
                state = getattr(job.status, "value", str(job.status))
                words = " ".join(f"{state}: {job.message}".split())
                node = (job.driver_node_id or "")[:12]
                phase = PHASES.get(state, "ended")
                states[name, int(number)] = JobState(
                    job.submission_id, phase, words, node, is_cancelled=state == "STOPPED"
                )
        return states

    def cancel(self, names: Collection[str]) -> None:
        """Stop queued and running jobs, which write checkpoints first."""
        for (name, number), state in self.states(names).items():
            if state.phase != "ended":
                self._call("stop_job", f"{name}_{number}")

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of Ray's client, and convert its exceptions to ParibusError."""
        try:
            from ray.job_submission import JobSubmissionClient  # type: ignore
        except ImportError:
            raise ParibusError(
                "backend 'ray' needs Ray, which is not installed; run pip install 'paribus[ray]'",
                code="not_installed",
            ) from None
        try:
            if self._client is None:
                self._client = JobSubmissionClient(self.options.address)
            return getattr(self._client, method)(*arguments, **named)
        except Exception as error:  # of any class: the message is Ray's
            words = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
            raise ParibusError(
                f"backend 'ray': {words.strip() or type(error).__name__}; run again to continue",
                code="system",
            ) from None
