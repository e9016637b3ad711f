"""The way into a results folder that jobs may be writing to, and out of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from paribus.engine.execution.backends import Backend, find_backend
from paribus.engine.execution.backends.jobs import JobBackend
from paribus.engine.execution.jobs.folder import JobsFolder
from paribus.errors import ParibusError
from paribus.files import sweep
from paribus.results import ResultsFolder
from paribus.results.formats import write_json

RECORD = "backend.json"


@contextlib.contextmanager
def entered(folder: ResultsFolder, backend: str | Backend) -> Iterator[None]:
    """Hold `folder` for a run by `backend`; at the end, its jobs have left.

    Raises ParibusError where jobs of another backend may still write to it.
    """
    backend = find_backend(backend)
    jobs = JobsFolder.of(folder.path)
    is_there = jobs.about() is not None
    if is_there:
        _require_own(jobs, backend)
    with folder.lock(swept=not is_there):
        for batch in jobs.batches():
            if batch.is_closed:
                batch.revoke_all()
        try:
            yield
        except BaseException:
            if not any(batch.is_submitted for batch in jobs.batches()):
                jobs.remove()  # nothing was ever submitted: a scheduler that refused, or none
            raise
        if isinstance(backend, JobBackend):
            from paribus.engine.execution.jobs.crew import leave

            leave(backend, jobs)
            sweep(folder.path)
        elif is_there:
            jobs.remove()


def note_backend(folder: ResultsFolder, backend: Backend) -> None:
    """Write down who trains what is trained from here on; it counts in no digest."""
    options: Any = getattr(backend, "options", None)
    given = options.model_dump(mode="json") if options is not None else {}
    write_json(folder.path / RECORD, {"backend": backend.name, "options": given})


def _require_own(jobs: JobsFolder, backend: Backend) -> None:
    about = jobs.about() or {}
    if backend.name == about["kind"] or not (live := jobs.live()):
        return
    names = ", ".join(batch.order.name for batch in live[:3])
    raise ParibusError(
        f"jobs of backend '{about['kind']}' may be at work on it ({names}): run with --backend "
        f"{about['kind']} to go on with them, or end them first with `paribus cancel`"
    )
