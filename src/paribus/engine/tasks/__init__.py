"""Tasks made from held-out text, for measuring a model by the choices it makes.

Every task is one file in `generators/`, or the user's own (`tasks.own`); `build_suite` draws their
items from the validation split and `write_suite` writes them down so that anybody's `lm_eval` runs
them unchanged.
"""

from paribus.engine.tasks.draw import SHOTS, Suite, TaskItems, build_suite
from paribus.engine.tasks.generators import all_tasks, find_tasks, own_tasks
from paribus.engine.tasks.task import HeldOut, Question, Task, task
from paribus.engine.tasks.written import (
    STANDARD_FILE,
    Pinned,
    WrittenSuite,
    read_standard,
    read_suite,
    registered_tasks,
    write_suite,
)

__all__ = [
    "SHOTS",
    "STANDARD_FILE",
    "HeldOut",
    "Pinned",
    "Question",
    "Suite",
    "Task",
    "TaskItems",
    "WrittenSuite",
    "all_tasks",
    "build_suite",
    "find_tasks",
    "own_tasks",
    "read_standard",
    "read_suite",
    "registered_tasks",
    "task",
    "write_suite",
]
