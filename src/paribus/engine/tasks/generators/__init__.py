"""The tasks, one file each. A new task is a file in this folder with one decorated function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from paribus.declared import declared
from paribus.engine.tasks.task import Task
from paribus.study.choices import no_such


@cache
def all_tasks() -> dict[str, Task]:
    """Every task by name, sorted."""
    return dict(sorted(declared(__name__, Task).items()))


def find_tasks(names: Sequence[str] | None = None, own: Sequence[Task] = ()) -> list[Task]:
    """The tasks of these names (None: all), `own` ones too, sorted.

    Raises ParibusError for an unknown one.
    """
    known = dict(sorted((all_tasks() | {one.name: one for one in own}).items()))
    for name in names or ():
        if name not in known:
            own_goes = "your own goes to tasks.own"
            raise no_such(name, known, "tasks.names", "task", __name__, own_goes)
    return [value for name, value in known.items() if names is None or name in names]
