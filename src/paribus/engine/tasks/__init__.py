"""Tasks made from held-out text, for measuring a model by the choices it makes.

Every task is one file in `generators/`, or the user's own (`tasks.own`); `write_suite` draws their
items from the validation split and writes them down so that anybody's `lm_eval` runs them
unchanged.
"""

from paribus.engine.tasks.generators import all_tasks, find_tasks, own_tasks
from paribus.engine.tasks.suite import (
    SHOTS,
    STANDARD_FILE,
    Pinned,
    Suite,
    configuration,
    read_standard,
    read_suite,
    registered_tasks,
    write_suite,
)
from paribus.engine.tasks.task import HeldOut, Question, Task, task

__all__ = [
    "SHOTS",
    "STANDARD_FILE",
    "HeldOut",
    "Pinned",
    "Question",
    "Suite",
    "Task",
    "all_tasks",
    "configuration",
    "find_tasks",
    "own_tasks",
    "read_standard",
    "read_suite",
    "registered_tasks",
    "task",
    "write_suite",
]
