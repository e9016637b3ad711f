"""Running a study's trials. Importing this loads no torch; the worker processes do."""

from paribus.execution.bench import Bench, StackSpeed, bench
from paribus.execution.budgets import settled_budgets
from paribus.execution.estimate import Estimate, estimate
from paribus.execution.evaluate import Answers, evaluate
from paribus.execution.followers import Progress
from paribus.execution.run import register, results_folder, run
from paribus.machine.programs import Device

__all__ = [
    "Answers",
    "Bench",
    "Device",
    "Estimate",
    "Progress",
    "StackSpeed",
    "bench",
    "estimate",
    "evaluate",
    "register",
    "results_folder",
    "run",
    "settled_budgets",
]
