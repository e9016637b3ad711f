"""The tasks: decorated functions in the files of this folder, or the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
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
    own = []
    for path, task in zip(
        paths, load_new(paths, "tasks.own", "task", Task, folder, all_tasks()), strict=True
    ):
        where = f"tasks.own = '{path}'"
        if not re.fullmatch(NAME, task.name):
            raise ParibusError(
                f"{where}: a task cannot be named {task.name!r}; take up to 64 letters, digits, "
                "'_' and '-'"
            )
        own.append(_guarded(task, where))
    return tuple(own)


def _guarded(task: Task, where: str) -> Task:
    def generate(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
        with blamed(f"{where} fails"):
            for question in task.generate(held_out, rng, length):
                _require_question(question, task, length)
                yield question

    return replace(task, generate=generate)


def _require_question(question: object, task: Task, length: int) -> None:
    if not isinstance(question, Question):
        raise TypeError(f"it gave {type(question).__name__}, not paribus.engine.tasks.Question")
    choices = (question.right, *question.wrong)
    if len(choices) != task.n_choices:
        raise ValueError(f"a question has {len(choices)} choices, and it declares {task.n_choices}")
    sizes = {len(choice) for choice in choices}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"choices of one question have {sorted(sizes)} characters: one length")
    if len(question.context) + len(question.right) > length:
        raise ValueError(
            f"context and choice together have {len(question.context) + len(question.right)} "
            f"characters, and {length} is the most"
        )
