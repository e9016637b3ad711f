"""What a study has running, seen without the command that started it: for `status` and `cancel`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.results.lock import holder
from paribus.runs.executors import Backend, shipped
from paribus.runs.executors.jobs import (
    JobBackend,
    JobState,
    read_submissions,
    scratch_folder,
    tail,
)
from paribus.runs.progress import Progress, Tracker
from paribus.runs.queue import Queue

LOG_LINES = 2
WAIT_SECONDS = 30.0  # for a run of this machine to leave


@dataclass(frozen=True)
class JobRow:
    """One job, as tables show it.

    Attributes:
        state: queued, running, requeued, done, failed, cancelled or unknown.
        reason: the scheduler's words.
        doing: the trials that it works on.
        log: its last lines, the last one first.
    """

    job: str
    state: str
    reason: str
    node: str
    doing: str
    log: tuple[str, ...] = ()


def read_progress(results: Path) -> Progress | None:
    """Return how far the run in a results folder is; None if no run is under way."""
    queue = Queue.of(results)
    if not queue.exists:
        return None
    tracker = Tracker(queue)
    for _ in tracker.update():
        pass
    return tracker.progress


def job_rows(results: Path) -> list[JobRow]:
    """Return the jobs of the run in a results folder; the scheduler is asked once.

    Raises ParibusError if the scheduler does not answer.
    """
    queue = Queue.of(results)
    submissions = read_submissions(queue)
    if not submissions:
        return []
    backend = _backend_of(queue)
    states = backend.states([one.name for one in submissions])
    doing: dict[str, list[str]] = {}
    for task, record in queue.claims().items():
        doing.setdefault(str(record.get("worker")), []).append(task)
    return [
        _row(backend, queue, one.name, k, states.get((one.name, k)), doing)
        for one in submissions
        for k in range(one.jobs)
    ]


def cancel(results: Path, backend: Backend | None = None) -> list[str]:
    """End what the study in a results folder has running, and nothing else.

    These are its jobs, and the command that runs it on this machine. Returns what was ended, a line
    each. `backend` is needed for jobs of the user's own. Raises ParibusError if nothing runs.
    """
    if not results.is_dir():
        raise ParibusError(f"there is no folder {results}; name a results folder")
    queue, ended = Queue.of(results), list[str]()
    if submissions := read_submissions(queue):
        kind = queue.read_order().executor["backend"]
        chosen = backend if backend is not None and backend.name == kind else None
        at = _backend_of(queue, chosen)
        names = [one.name for one in submissions]
        running = {name for (name, _), state in at.states(names).items() if state.phase != "ended"}
        if running:
            queue.fail("the run was cancelled; run again to continue")
            at.cancel(sorted(running))
            ended.append(f"jobs of backend '{kind}' were cancelled: {', '.join(sorted(running))}")
    run = holder(results)
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


def _backend_of(queue: Queue, chosen: Backend | None = None) -> JobBackend:
    executor = queue.read_order().executor
    kind = str(executor["backend"])
    try:
        found = chosen or shipped(kind, executor["options"])
    except ParibusError as error:
        raise ParibusError(
            f"the recorded options of backend '{kind}' do not hold ({error}); cancel its jobs with "
            f"`paribus cancel` and --backend {kind}"
        ) from None
    if not isinstance(found, JobBackend):
        # Code is named on the command line, never by a folder.
        raise ParibusError(f"its jobs are of backend '{kind}': name it with --backend")
    return found


def _row(
    backend: JobBackend,
    queue: Queue,
    name: str,
    number: int,
    state: JobState | None,
    doing: dict[str, list[str]],
) -> JobRow:
    log = tail(backend.log(scratch_folder(queue, name), number))[:LOG_LINES]
    phase = "unknown"
    if state is not None:
        phase = "cancelled" if state.is_cancelled else state.phase
        if phase == "ended":
            phase = "done" if queue.is_over or not log else "failed"
    at = ", ".join(doing.get(f"{name}-{number}", []))
    words, node, job = (state.words, state.node, state.id) if state else ("", "", name)
    return JobRow(job, phase, words, node, at, tuple(log))
