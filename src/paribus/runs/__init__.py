"""Runs: workers, on any machine, do the remaining work of a study.

The path of a trial from a study file to a sealed record:

  run.py             `run` writes an order into a queue in the results folder (`queue.py`)
  executors/         start workers
  worker.py          a worker claims a task and does it in a child process, using the study's
                     runner: `trainer_runner.py`, or `paribus.engine.execution.runner`
  advance.py         base class of runners: the stages of a study, and which tasks come next
  trainer_runner.py  the child gets the record of a trial from the trainer, checks and writes it
  sealing.py         seals the first record of a trial, which counts
"""
