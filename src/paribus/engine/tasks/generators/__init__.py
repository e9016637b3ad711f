"""The tasks: decorated functions in the files of this folder, or the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import starmap
from pathlib import Path

import numpy as np

from paribus.declared import declared
from paribus.engine.tasks.task import NAME, HeldOut, Question, Task
from paribus.errors import ParibusError, blamed
from paribus.study.choices import load_new, no_such


@cache
def all_tasks() -> dict[str, Task]:
    """Return every task by name, sorted."""
    return dict(sorted(declared(__name__, Task).items()))


def find_tasks(names: Sequence[str] | None = None, own: Sequence[Task] = ()) -> list[Task]:
    """Return the tasks of these names (None: all), `own` ones too, sorted.

    Raises ParibusError for an unknown one.
    """
    known = dict(sorted((all_tasks() | {task.name: task for task in own}).items()))
    for name in names or ():
        if name not in known:
            own_goes = "your own goes to tasks.own"
            raise no_such(name, known, "tasks.names", "task", __name__, own_goes)
    return [value for name, value in known.items() if names is None or name in names]


def own_tasks(paths: Sequence[str], folder: Path) -> tuple[Task, ...]:
    """Return the tasks at these import paths; file paths are relative to `folder`.

    Raises ParibusError for a path that names no task and for a name that is taken or cannot be that
    of a file; and, while questions are drawn, where the task fails or gives what is not a question.
    """
    own = tuple(load_new(paths, "tasks.own", "task", Task, folder, all_tasks()))
    for path, task in zip(paths, own, strict=True):
        if not re.fullmatch(NAME, task.name):
            raise ParibusError(
                f"tasks.own = '{path}': a task cannot be named {task.name!r}; take up to 64 "
                "letters, digits, '_' and '-'"
            )
    return tuple(starmap(_guarded, zip(own, paths, strict=True)))


def _guarded(task: Task, path: str) -> Task:
    def generate(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
        with blamed(f"tasks.own = '{path}' fails"):
            for question in task.generate(held_out, rng, length):
                choices = (question.right, *question.wrong)
                sizes = {len(choice) for choice in choices}
                if len(choices) != task.n_choices or len(sizes) != 1 or 0 in sizes:
                    raise ValueError(
                        f"a question has choices of {sorted(map(len, choices))} characters: give "
                        f"{task.n_choices} of one length"
                    )
                if len(question.context) + max(sizes) > length:
                    raise ValueError(
                        f"context and choice together have more than {length} characters"
                    )
                yield question

    return replace(task, generate=generate)
