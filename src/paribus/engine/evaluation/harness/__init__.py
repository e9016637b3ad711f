"""The LM Evaluation Harness: a trained model in it, tasks run through it, and what ran pinned.

Importing this room does not load the harness; `evaluate_tasks` and `evaluate_standard` do.
"""

from paribus.engine.evaluation.harness.outcome import (
    CELLS,
    HEADLINE,
    ITEMS,
    TASK_ACCURACY,
    TaskResults,
    together,
)
from paribus.engine.evaluation.harness.standard import (
    describe_standard,
    evaluate_standard,
    standard_tasks,
)
from paribus.engine.evaluation.harness.task_runs import evaluate_tasks

__all__ = [
    "CELLS",
    "HEADLINE",
    "ITEMS",
    "TASK_ACCURACY",
    "TaskResults",
    "describe_standard",
    "evaluate_standard",
    "evaluate_tasks",
    "standard_tasks",
    "together",
]
