"""`slurm`: arrays of SLURM jobs, through submitit.

submitit writes the script and a pickle of the command into a scratch folder of the run. Before a
job's time is over, or when it is preempted, SLURM signals it: its workers write checkpoints, and it
is requeued under its own number, without the command that submitted it.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from paribus.errors import ParibusError
from paribus.runs.executors import backend
from paribus.runs.executors.jobs import Count, JobBackend, JobOptions, JobState, Phase

ASK_SECONDS = 60  # how long a program of SLURM may take to answer
MOST_TIMEOUTS = 10_000  # a job is requeued after its time, and goes on from a checkpoint
FIELDS = "%j|%F|%K|%T|%r|%N|%A"
PHASES: dict[str, Phase] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "RESIZING"), "queued"),
    **dict.fromkeys(("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"), "queued"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT"), "running"),
    **dict.fromkeys(("SUSPENDED", "STOPPED", "SIGNALING"), "running"),
}


def _minutes(value: Any) -> Any:
    """Return a time as SLURM writes it ("30", "12:00:00", "2-00:00:00") in minutes."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value)
    if not match:
        raise ValueError(f"{value!r} is no time; write minutes, '12:00:00' or '2-00:00:00'")
    days, first, second, third = (int(part or 0) for part in match.groups())
    has_hours = match[1] is not None or match[4] is not None
    minutes = days * 1440 + (first * 60 + second if has_hours else first)
    return minutes + bool(third if has_hours else second)


class SlurmOptions(JobOptions):
    """Resources and options of each SLURM job."""

    partition: str | None = None
    """By default the cluster's own."""
    account: str | None = None
    """What its hours are charged to."""
    qos: str | None = None
    """Quality of service."""
    time: Annotated[int, Field(ge=1), BeforeValidator(_minutes)] = 1440
    """Minutes, or as SLURM writes it; a job that needs longer goes on in the queue again."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """Of each job. It has one worker for every resources.devices_per_trial of them."""
    cpus: Count | None = None
    """Cores; by default one for each worker."""
    memory: str | None = None
    """Such as "32GB"."""
    checkpoint_seconds_before: Annotated[int, Field(ge=10, le=65_535)] = 90
    """How long before the end of its time a job is told, and writes its checkpoints."""
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    """Any other option of `sbatch`, by its long name: { constraint = "a100" }."""
    setup: tuple[str, ...] = Field((), strict=False)
    """Lines of shell before the job, such as "module load cuda"."""

    @model_validator(mode="after")
    def _require_time_to_train(self) -> Self:
        """Require a job longer than its warning; it would be requeued forever."""
        if self.checkpoint_seconds_before >= 60 * self.time:
            raise ValueError(
                f"checkpoint_seconds_before = {self.checkpoint_seconds_before} must be less than "
                f"the time of a job, {60 * self.time} s; state a longer time, or fewer seconds"
            )
        return self


class Attempt:
    """A command that submitit calls on a node; when told to leave, it ends the command first."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Run the command; raise RuntimeError if it fails, so that the job fails too."""
        self._process = subprocess.Popen(self.command)
        if code := self._process.wait():
            raise RuntimeError(f"{self.command[-1]} ended with code {code}")
        return 0

    def checkpoint(self) -> Any:
        """Let workers write their checkpoints, and return what submitit queues again."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            # This runs in a signal handler, and the interrupted `wait` holds a lock.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(Attempt(self.command))


@backend("slurm", options=SlurmOptions)
class Slurm(JobBackend):
    """Jobs of SLURM."""

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        """Submit one array through submitit."""
        try:
            import submitit
        except ImportError:
            raise ParibusError(
                "backend 'slurm' submits by submitit, which is not installed; "
                "pip install 'paribus[slurm]'",
                code="not_installed",
            ) from None
        _require_slurm()
        executor = submitit.SlurmExecutor(folder=scratch, max_num_timeout=MOST_TIMEOUTS)
        options: SlurmOptions = self.options
        parameters = {
            "job_name": name,
            "time": options.time,
            "partition": options.partition,
            "account": options.account,
            "qos": options.qos,
            "mem": options.memory,
            "cpus_per_task": options.cpus or options.workers or options.gpus or 1,
            "gpus_per_node": options.gpus or None,
            "nodes": 1,
            "signal_delay_s": options.checkpoint_seconds_before,
            "array_parallelism": options.jobs,
            "setup": list(options.setup) or None,
            "additional_parameters": {"requeue": True} | options.options,
        }
        output = io.StringIO()
        try:
            with contextlib.redirect_stderr(output):
                executor.update_parameters(**{k: v for k, v in parameters.items() if v is not None})
                with executor.batch():
                    for command in commands:
                        executor.submit(Attempt(command))
        except Exception as error:  # of any class: the message is that of sbatch
            words = _last_line(str(error) or output.getvalue())
            raise ParibusError(f"backend 'slurm': {words}") from None

    def states(self, names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        """Ask `squeue` once."""
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
        """End jobs by name; each name belongs to one study."""
        for name in names:
            _ask("scancel", "-u", getpass.getuser(), "-n", name)

    def log(self, scratch: Path, number: int) -> Path:
        """Return the standard error of a job's last attempt."""
        logs = [*scratch.glob(f"*_{number}_0_log.err"), *scratch.glob("*_0_log.err")]
        return logs[0] if logs else scratch / "none"


def _require_slurm() -> None:
    if shutil.which("sbatch") is None:
        raise ParibusError(
            "backend 'slurm': there is no sbatch on this machine; run on a login node of the "
            "cluster, or leave --backend out",
            code="not_installed",
        )


def _ask(*command: str) -> str:
    """Return the output of a SLURM program. Raises ParibusError in its words."""
    _require_slurm()
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        ).stdout
    except subprocess.TimeoutExpired:
        raise ParibusError(
            f"{command[0]} did not answer for {ASK_SECONDS} s; run again", code="system"
        ) from None
    except subprocess.CalledProcessError as error:
        words = _last_line(error.stderr)
        raise ParibusError(
            f"backend 'slurm': {words}; run again to continue", code="system"
        ) from None


def _last_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    named = [line for line in lines if "error:" in line]
    return (named or lines or ["it said nothing"])[0].removeprefix("sbatch: error: ")
