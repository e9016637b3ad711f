"""The trainer `command`: any program is started with a seed, and its numbers are read.

`sections` reads the study file, `sources` finds the code, `scores` reads numbers, `records`
compares trials, and `trainer` runs them. Nothing here imports PyTorch.
"""
