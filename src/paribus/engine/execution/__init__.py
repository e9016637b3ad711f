"""Running a study's trials: `run.py` starts them, `worker.py` is where they are trained.

Names are imported from the files that have them: a worker, whose start is waited for, imports this
folder as well and needs little of it. What starts workers imports no torch.
"""
