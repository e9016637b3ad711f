"""Running a study's trials: `runner.py` says what comes next, `tasks.py` is what children do.

Names are imported from the files that define them. The code that starts workers does not import
torch.
"""
