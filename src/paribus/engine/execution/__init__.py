"""Execution of a study's trials: `runner.py` schedules tasks, and `tasks.py` executes them.

Import names from the files that define them, because code that starts workers must not import
torch.
"""
