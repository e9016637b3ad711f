"""What a study has running, for `paribus status` and `cancel`: seen without the command
that submitted it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.engine.execution.backends import Backend, shipped
from paribus.engine.execution.backends.jobs import JobBackend, JobState
from paribus.engine.execution.jobs.folder import Batch, JobsFolder, tail
from paribus.engine.execution.workers.messages import Finished, Resumed, Trained, decode
from paribus.errors import ParibusError
from paribus.results.lock import holder

LOG_LINES = 2
OVER = ("done", "failed", "cancelled", "ended")  # states of a job that runs no more
WAIT_SECONDS = 30.0  # for a run of this machine to leave


@dataclass(frozen=True)
class JobRow:
    """One job, as tables show it.

    Attributes:
        state: queued, running, requeued, done, failed, cancelled or unknown.
        reason: the scheduler's words.
        doing: what it does: trials that it has, and the step of those under way.
        log: its last lines, the last one first.
    """

    job: str
    state: str
    reason: str
    node: str
    doing: str
    log: tuple[str, ...] = ()


def job_rows(results: Path) -> list[JobRow]:
    """Return the jobs of the run in a results folder, the scheduler asked once; none where it has
    none, or they have left. Raises ParibusError where the scheduler does not answer.
    """
    jobs = JobsFolder.of(results)
    about = jobs.about()
    if about is None:
        return []
    found = _rows(_backend_of(about), jobs.batches())
    return [row for rows in found.values() for row in rows]


def cancel(results: Path, backend: Backend | None = None) -> list[str]:
    """End what the study in a results folder has running, and nothing else.

    That is its jobs, and the command that runs it on this machine. Returns what was ended, a line
    each.

    `backend` is needed where the user's own has the jobs. Raises ParibusError where nothing runs.
    """
    jobs, ended = JobsFolder.of(results), list[str]()
    about = jobs.about()
    if about is not None:
        chosen = backend if backend is not None and backend.name == about["kind"] else None
        if names := _end_those_that_run(_backend_of(about, chosen), jobs):
            ended.append(f"jobs of backend '{about['kind']}' were cancelled: {', '.join(names)}")
    run = holder(results) if results.is_dir() else None
    if run is not None and not run["is_here"] and not ended:
        raise ParibusError(
            f"{results} is run by process {run.get('pid')} of {run.get('host')}; cancel it there"
        )
    if run is not None and run["is_here"]:
        _interrupt(results, run)
        ended.append(f"the command that ran it (process {run['pid']}) was interrupted")
    if not ended:
        raise ParibusError(
            f"nothing runs in {results}; `paribus status {results}` shows how far it is"
        )
    return ended


def _interrupt(results: Path, run: dict[str, Any]) -> None:
    """Let the command that holds a folder write checkpoints and leave."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(run["pid"], signal.SIGTERM)
    began = time.monotonic()
    while holder(results) == run and time.monotonic() - began < WAIT_SECONDS:
        time.sleep(0.1)


def _backend_of(about: dict[str, Any], chosen: Backend | None = None) -> JobBackend:
    kind = str(about["kind"])
    if chosen is None and ":" in kind:  # code is named on the command line, never by a folder
        raise ParibusError(f"its jobs are of your own backend: name it with --backend {kind}")
    try:
        found = chosen or shipped(kind, about["options"])
    except ParibusError as error:
        raise ParibusError(
            f"options of its jobs' backend, as they were noted, do not hold ({error}); cancel them "
            f"with `paribus cancel` and --backend {kind}"
        ) from None
    if not isinstance(found, JobBackend):
        raise ParibusError(
            f"its jobs are of backend '{kind}', "
            f"{'which does not ship' if found is None else 'which has none'}: name yours with "
            "--backend"
        )
    return found


def _rows(backend: JobBackend, batches: list[Batch]) -> dict[str, list[JobRow]]:
    """Return the jobs of every submission by its name, the scheduler asked once."""
    names = [batch.order.name for batch in batches]
    states = backend.states(names) if names else {}
    return {
        name: [
            _row(backend, batch, number, states.get((name, number)))
            for number in range(len(batch.order.jobs))
        ]
        for name, batch in zip(names, batches, strict=True)
    }


def _row(backend: JobBackend, batch: Batch, number: int, state: JobState | None) -> JobRow:
    how = batch.end(number)
    log = list(tail(backend.log(batch.scheduler, number)))[:LOG_LINES]
    name = state.id if state else f"{batch.order.name} {number}"
    words, node = (state.words, state.node) if state else ("", "")
    if how is not None and how["how"] == "done":
        phase = "done"
    elif how is not None and how["how"] == "refused":
        phase, words = "failed", str(how["words"])
    elif state is not None and state.is_cancelled:
        phase = "cancelled"
    elif state is None:
        phase = "unknown" if not batch.is_closed else "ended"
    elif state.phase == "ended":
        phase = "requeued" if how is not None else "failed"
    else:
        phase = state.phase
    return JobRow(name, phase, words, node, _doing(batch, number), tuple(log))


def _doing(batch: Batch, number: int) -> str:
    lines = [line for line in batch.order.jobs[number] if line]
    if not lines:
        return {"start": "tries the arms", "time": "times the arms"}.get(
            batch.order.kind, "trains again"
        )
    steps, done = dict[str, int](), set[str]()
    for about in batch.told(number, 0)[0]:
        if "message" in about:
            with contextlib.suppress(ValueError):
                match decode(about["message"]):
                    case Resumed(t=t) | Trained(t=t):
                        steps[about["task"]] = t
                    case Finished():
                        done.add(about["task"])
    parts = [f"{len(done)} of {len(lines)} done"]
    parts += [f"{_label(line)} at step {t}" for line, t in steps.items() if line not in done]
    return ", ".join(parts[:3])


def _label(line: str) -> str:
    first, *others = decode(line).labels
    return f"{first} and {len(others)} more" if others else first


def _end_those_that_run(backend: JobBackend, jobs: JobsFolder) -> list[str]:
    """End every job of a run where one has not ended; returns the submissions that had such."""
    found = _rows(backend, jobs.live())
    names = [name for name, rows in found.items() if any(row.state not in OVER for row in rows)]
    if names:
        end_jobs(backend, jobs)
    return names


def end_jobs(backend: JobBackend, jobs: JobsFolder) -> list[str]:
    """End every job of a run, and let none write any more; returns the submissions that had one."""
    live = jobs.live()
    for batch in live:
        batch.close()
    names = [batch.order.name for batch in live]
    if names:
        backend.cancel(names)
    return names
