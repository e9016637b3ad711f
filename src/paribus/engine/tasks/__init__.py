"""Multiple-choice tasks generated from held-out text.

Tasks are declared in `generators/`, or by the user (`tasks.own`). `write_suite` samples their items
from the validation split, and writes them in a format that `lm_eval` can run unchanged.
"""

from paribus.engine.tasks.generators import find_tasks, own_tasks
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
from paribus.engine.tasks.task import HeldOut, Question, task
