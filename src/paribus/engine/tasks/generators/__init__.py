"""Registry of the built-in tasks in this folder, and loading of custom tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from paribus.declared import declared
from paribus.engine.tasks.task import Task
from paribus.study.choices import load_new, require_declared


@cache
def all_tasks() -> dict[str, Task]:
    """Return the built-in tasks, keyed and sorted by name."""
    return dict(sorted(declared(__name__, Task).items()))


def find_tasks(names: Sequence[str] | None = None, own: Sequence[Task] = ()) -> list[Task]:
    """Return tasks sorted by name, or raise ParibusError for an unknown name.

    Args:
        names: names of the tasks to return; None means all.
        own: custom tasks, searched in addition to the built-in ones.
    """
    known = dict(sorted((all_tasks() | {task.name: task for task in own}).items()))
    for name in names or ():
        own_goes = "list custom ones in tasks.own"
        require_declared(name, known, "tasks.names", "task", own_goes)
    return [value for name, value in known.items() if names is None or name in names]


def own_tasks(paths: Sequence[str], folder: Path) -> tuple[Task, ...]:
    """Load custom tasks from import paths, with files resolved against `folder`.

    Raises ParibusError if a path does not lead to a task, or if its name is already used.
    """
    return tuple(load_new(paths, "tasks.own", "task", Task, folder, all_tasks()))
