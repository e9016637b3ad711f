"""Execution of studies by workers on one or more machines.

Modules, in the order in which they process a trial:

  run.py             writes the run's configuration to a queue in the results folder (`queue.py`)
  executors/         start workers
  worker.py          claims tasks and runs each one in a child process, with the study's runner:
                     `trainer_runner.py` or `paribus.engine.execution.runner`
  advance.py         base class of runners, which determines the stages of a study and their tasks
  trainer_runner.py  gets the record of a trial from the trainer, validates it and writes it
  sealing.py         completes a trial by an atomic rename; the first record is used
"""
