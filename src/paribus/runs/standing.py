"""Listing and cancelling the jobs of a study, without the command that started them."""

from __future__ import annotations

import os
import platform
import signal
import time
from dataclasses import replace
from pathlib import Path

from paribus.errors import ParibusError
from paribus.results.store import lock_holder, run_lock
from paribus.runs.executors import Backend, find_backend
from paribus.runs.executors.jobs import JobState, log_of, read_submissions
from paribus.runs.processes import tail
from paribus.runs.queue import Queue

LOG_LINES = 2
WAIT_SECONDS = 30.0  # for a run on this machine to leave


def job_states(results: Path) -> list[JobState]:
    """Return the states of the jobs of a results folder's run; ask the scheduler once.

    Raises ParibusError if the scheduler does not answer.
    """
    queue = Queue.of(results)
    submissions = read_submissions(queue)
    states = _recorded_backend(queue).states(list(submissions)) if submissions else {}
    tasks: dict[str, list[str]] = {}
    for task, record in queue.claims().items():
        tasks.setdefault(str(record.get("worker")), []).append(task)
    jobs = []
    for name, k in [(name, k) for name, n_jobs in submissions.items() for k in range(n_jobs)]:
        state = states.get((name, k), JobState(name, "ended", "not in the queue"))
        is_cut = state.phase == "ended" and not queue.is_over
        log = tuple(tail(log_of(queue, name, k))[:LOG_LINES]) if is_cut else ()
        jobs.append(replace(state, doing=", ".join(tasks.get(f"{name}-{k}", [])), log=log))
    return jobs


def cancel(results: Path) -> list[str]:
    """End the running jobs or command of the study in a results folder, and nothing else.

    Returns a line for each job or command that was ended. Raises ParibusError if nothing runs.
    """
    if not results.is_dir():
        raise ParibusError(f"there is no folder {results}; name a results folder", code="missing")
    queue, ended = Queue.of(results), list[str]()
    if submissions := read_submissions(queue):
        backend = _recorded_backend(queue)
        states = backend.states(list(submissions))
        running = sorted({name for (name, _), state in states.items() if state.phase != "ended"})
        if running:
            queue.fail("the run was cancelled; run again to continue")
            backend.cancel(running)
            ended.append(f"jobs of backend '{backend.name}' were cancelled: {', '.join(running)}")
    try:
        with run_lock(results):
            pass
    except ParibusError:
        process, host = lock_holder(results)
        if host == platform.node():
            os.kill(process, signal.SIGTERM)  # it writes checkpoints and leaves
            began = time.monotonic()
            while lock_holder(results)[0] and time.monotonic() - began < WAIT_SECONDS:
                time.sleep(0.1)
            ended.append(f"the command that ran it (process {process}) was interrupted")
        elif not ended:
            raise
    if not ended:
        raise ParibusError(
            f"nothing runs in {results}; `paribus status {results}` shows its progress",
            code="missing",
        )
    return ended


def _recorded_backend(queue: Queue) -> Backend:
    executor = queue.read_order().executor
    return find_backend(str(executor["backend"]), executor["options"])
