"""The tasks: decorated functions in this folder, and custom ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from paribus.declared import declared
from paribus.engine.tasks.task import Task
from paribus.study.choices import load_new, require_declared


@cache
def all_tasks() -> dict[str, Task]:
    """Return every task by name, sorted."""
    return dict(sorted(declared(__name__, Task).items()))


def find_tasks(names: Sequence[str] | None = None, own: Sequence[Task] = ()) -> list[Task]:
    """Return the tasks of these names (None means all), including `own` ones, sorted.

    Raises ParibusError for an unknown name.
    """
    known = dict(sorted((all_tasks() | {task.name: task for task in own}).items()))
    for name in names or ():
        own_goes = "your own goes to tasks.own"
        require_declared(name, known, "tasks.names", "task", __name__, own_goes)
    return [value for name, value in known.items() if names is None or name in names]


def own_tasks(paths: Sequence[str], folder: Path) -> tuple[Task, ...]:
    """Return the tasks at these import paths; file paths are relative to `folder`.

    Raises ParibusError for a path that is not a task, and for a name that is taken.
    """
    return tuple(load_new(paths, "tasks.own", "task", Task, folder, all_tasks()))
