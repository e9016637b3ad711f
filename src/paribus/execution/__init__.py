"""Running a study's trials. Importing this loads no torch; the worker processes do."""

from paribus.execution.estimate import Estimate, estimate
from paribus.execution.pool import Device
from paribus.execution.run import Progress, register, results_folder, run

__all__ = ["Device", "Estimate", "Progress", "estimate", "register", "results_folder", "run"]
