"""Listing and cancelling of a study's jobs, independent of the command that started them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paribus.errors import ParibusError
from paribus.runs.executors import Backend, find_backend
from paribus.runs.executors.jobs import JobState, log_of, read_submissions
from paribus.runs.processes import tail
from paribus.runs.queue import Queue

LOG_LINES = 2


def job_states(results: Path) -> list[JobState]:
    """Return the states of the jobs that run the study in a results folder.

    The scheduler is queried once. Raises ParibusError if it does not answer.
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


def cancel(results: Path) -> str:
    """Cancel the jobs that run the study in a results folder, and return a message.

    No other jobs are cancelled. Raises ParibusError if no job is running.
    """
    if not results.is_dir():
        raise ParibusError(f"{results} does not exist; name a results folder", code="missing")
    queue = Queue.of(results)
    if submissions := read_submissions(queue):
        backend = _recorded_backend(queue)
        states = backend.states(list(submissions))
        running = sorted({name for (name, _), state in states.items() if state.phase != "ended"})
        if running:
            queue.fail("the run was cancelled; run again to continue")
            backend.cancel(running)
            return f"jobs of backend '{backend.name}' were cancelled: {', '.join(running)}"
    raise ParibusError(
        f"no jobs are running in {results}; stop a command on this machine with Ctrl-C",
        code="missing",
    )


def _recorded_backend(queue: Queue) -> Backend:
    executor = queue.read_order().executor
    return find_backend(str(executor["backend"]), executor["options"])
