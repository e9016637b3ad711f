"""Status, job states and cancellation of a run that another process started."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from paribus.errors import ParibusError
from paribus.results.store import lock_holder
from paribus.runs.executors import Backend, find_backend
from paribus.runs.executors.jobs import JobState, log_of, read_submissions
from paribus.runs.processes import has_died, tail
from paribus.runs.queue import Queue

LOG_LINES = 2
CANCELLED = "the run was cancelled; run again to continue"
WAIT_SECONDS = 90.0  # for a command whose workers write checkpoints


def is_active(results: Path) -> bool:
    """Return whether a results folder has an active run, as jobs or as a command."""
    queue = Queue.locate(results)
    if queue.is_over:
        return False
    if read_submissions(queue):
        return True  # jobs outlive their command
    process, host = lock_holder(results)
    return process > 0 and not has_died(process, host)


def job_states(results: Path) -> list[JobState]:
    """Query the scheduler once, and return the states of a run's jobs.

    Raises ParibusError if the scheduler does not answer.
    """
    queue = Queue.locate(results)
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


def cancel(results: Path) -> str:
    """Cancel the run in a results folder, and return a message for the user.

    Only jobs of this run are cancelled. If there are none, workers are stopped through the queue,
    and the command that started them then exits. Raises ParibusError if nothing is running.
    """
    if not results.is_dir():
        raise ParibusError(f"{results} does not exist; choose a results folder", code="missing")
    queue = Queue.locate(results)
    if submissions := read_submissions(queue):
        backend = _recorded_backend(queue)
        states = backend.states(list(submissions))
        running = sorted({name for (name, _), state in states.items() if state.phase != "ended"})
        if running:
            queue.fail(CANCELLED)
            backend.cancel(running)
            return f"jobs of backend '{backend.name}' were cancelled: {', '.join(running)}"
    if not is_active(results):
        raise ParibusError(
            f"nothing is running in {results}; see its progress with `paribus status {results}`",
            code="missing",
        )
    process, host = lock_holder(results)
    queue.fail(CANCELLED)
    deadline = time.monotonic() + WAIT_SECONDS
    while queue.exists:  # its command removes it
        if time.monotonic() > deadline:
            raise ParibusError(
                f"process {process} on {host} is still running; terminate it there",
                code="in_use",
            )
        time.sleep(0.1)
    return f"the run was cancelled, and its command (process {process} on {host}) has exited"


def _recorded_backend(queue: Queue) -> Backend:
    executor = queue.read_order().executor
    return find_backend(str(executor["backend"]), executor["options"])
