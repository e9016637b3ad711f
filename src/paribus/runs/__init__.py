"""Runs: workers do what a results folder lacks, wherever they are started.

`run` opens a queue in the results folder (`queue.py`), an executor starts workers (`executors/`),
and each worker (`worker.py`) claims tasks, does them in child processes, and finds out what comes
next (`advance.py`). Records are written by `records.py`, or by the engine.
"""

from paribus.runs.run import ask, register, results_folder, run, try_briefly

__all__ = ["ask", "register", "results_folder", "run", "try_briefly"]
