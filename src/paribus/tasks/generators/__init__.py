"""The tasks, one file each. A new task is a file in this folder with one decorated function."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache

from paribus.errors import ParibusError, nearest
from paribus.tasks.task import Task


@cache
def all_tasks() -> dict[str, Task]:
    """Every task by name, sorted."""
    found: dict[str, Task] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Task):
                if value.name in found:
                    raise ValueError(f"task '{value.name}' is registered twice")
                found[value.name] = value
    return dict(sorted(found.items()))


def find_tasks(names: Sequence[str] | None = None) -> list[Task]:
    """The tasks of these names (None: all), sorted. Raises ParibusError for an unknown one."""
    known = all_tasks()
    for name in names or ():
        if name not in known:
            raise ParibusError(f"task '{name}' is unknown: {nearest(name, known)}")
    return [value for name, value in known.items() if names is None or name in names]
