"""Execution of trials with the built-in engine.

`runner.py` schedules tasks, and `tasks.py` runs them in child processes. Import names from the
files that define them, because code that starts workers must not import torch.
"""
