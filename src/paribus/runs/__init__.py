"""Runs: workers, on any machine, do the missing work of a results folder.

The way of a trial from a study file to a sealed record:

  run.py             `run` writes an order into a queue in the results folder (`queue.py`)
  executors/         start workers
  worker.py          a worker claims a task and does it in a child process, by the study's runner:
                     `trainer_runner.py`, or `paribus.engine.execution.runner`
  advance.py         what every runner has: the stages of a study, and which tasks come next
  trainer_runner.py  the child asks the trainer for the record of a trial, checks it and writes it
  sealing.py         the first record of a trial counts
"""
