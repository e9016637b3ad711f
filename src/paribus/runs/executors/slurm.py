"""Backend `slurm`, which submits SLURM job arrays.

The job script is stored in a scratch folder of the run. Before a job's time limit, SLURM sends a
signal. The worker then writes checkpoints, and the job requeues itself under the same number, even
if the command that submitted it has exited.
"""

from __future__ import annotations

import datetime
import getpass
import shlex
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.runs.executors.jobs import Backend, JobOptions, JobState, Phase, States

ASK_SECONDS = 60  # how long a program of SLURM may take to answer
SCRIPT = """#!/bin/bash
{setup}
leave() {{
    kill -TERM "$worker"
    wait "$worker"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
    exit 0
}}
trap leave USR2
case $SLURM_ARRAY_TASK_ID in
{commands}
esac
worker=$!
wait "$worker"
"""
FIELDS = "%j|%F|%K|%T|%r|%N|%A"
PHASES: dict[str, Phase] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "RESIZING"), "queued"),
    **dict.fromkeys(("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"), "queued"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT"), "running"),
    **dict.fromkeys(("SUSPENDED", "STOPPED", "SIGNALING"), "running"),
}


class SlurmOptions(JobOptions):
    """Resources and options of each SLURM job."""

    partition: str | None = None
    """Partition to submit to; by default the cluster's default partition."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service."""
    time: int | str | datetime.time = 1440
    """Time limit in minutes, or in SLURM's format; unfinished jobs are requeued at the limit."""
    memory: str | None = None
    """Memory per node, such as "32GB"."""
    checkpoint_seconds_before: Annotated[int, Field(ge=10, le=65_535)] = 90
    """Time between the signal to write checkpoints and the time limit, in seconds."""
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    """Additional `sbatch` options, keyed by long name, such as { constraint = "a100" }."""
    setup: tuple[str, ...] = Field(default=(), strict=False)
    """Shell commands that run before the worker, such as "module load cuda"."""


class Slurm(Backend):
    """Backend that submits SLURM job arrays."""

    name = "slurm"
    Options = SlurmOptions

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit the commands as one job array."""
        options: SlurmOptions = self.options
        flags = {
            "job-name": name,
            "array": f"0-{len(commands) - 1}",
            "output": scratch / "%a.log",
            "time": options.time,
            "partition": options.partition,
            "account": options.account,
            "qos": options.qos,
            "mem": options.memory,
            "cpus-per-task": options.cpus or options.workers or options.gpus or 1,
            "gpus-per-node": options.gpus or None,
            "nodes": 1,
            "signal": f"B:USR2@{options.checkpoint_seconds_before}",
            "requeue": True,
            **{key.replace("_", "-"): value for key, value in options.options.items()},
        }
        words = [
            f"--{key}" if value is True else f"--{key}={value}"
            for key, value in flags.items()
            if value is not None and value is not False
        ]
        _ask("sbatch", *words, str(write_script(scratch, commands, options.setup)))

    def states(self, names: Collection[str]) -> States:
        """Query `squeue` once, and return the states of the jobs."""
        output = _ask(
            *("squeue", "-h", "-r", "-t", "all", "-u", getpass.getuser()),
            *("-n", ",".join(names), "-o", FIELDS),
        )
        states: dict[tuple[str, int], JobState] = {}
        for line in output.splitlines():
            fields = [field.strip() for field in line.split("|")]
            if len(fields) != len(FIELDS.split("|")) or fields[0] not in names:
                continue
            name, array, number, state, reason, node, job = fields
            is_array = number.isdecimal()
            states[name, int(number) if is_array else 0] = JobState(
                f"{array}_{number}" if is_array else job,
                PHASES.get(state, "ended"),
                state if reason in ("None", "") else f"{state}: {reason}",
                node,
                is_cancelled=state == "CANCELLED",
            )
        return states

    def cancel(self, names: Collection[str]) -> None:
        """Cancel all of the user's jobs with these names, which are unique to a run."""
        for name in names:
            _ask("scancel", "-u", getpass.getuser(), "-n", name)


def write_script(scratch: Path, commands: Sequence[Sequence[str]], setup: Sequence[str]) -> Path:
    """Write a job script, in which each array job runs one of `commands`, and return its path."""
    cases = [f"{k}) {shlex.join(command)} & ;;" for k, command in enumerate(commands)]
    script = scratch / "job.sh"
    write_bytes(script, SCRIPT.format(setup="\n".join(setup), commands="\n".join(cases)).encode())
    return script


def _ask(*command: str) -> str:
    """Run a SLURM command and return its output, or raise ParibusError with its message."""
    if shutil.which(command[0]) is None:
        raise ParibusError(
            f"backend 'slurm': {command[0]} is not installed on this machine; run paribus on a "
            "login node of the cluster, or omit --backend",
            code="not_installed",
        )
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        ).stdout
    except subprocess.TimeoutExpired:
        why = f"{command[0]} did not answer for {ASK_SECONDS} s"
    except subprocess.CalledProcessError as error:
        lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        named = [line for line in lines if "error:" in line]
        why = (named or lines or ["no error message"])[0].removeprefix("sbatch: error: ")
    raise ParibusError(f"backend 'slurm': {why}; run again to continue", code="system")
