"""The trainer `command`: runs any program with a seed, and reads its scores.

`sections` reads the study file, `sources` finds the code, `scores` reads numbers, `records`
compares trials, and `trainer` runs them. Nothing here imports PyTorch.
"""
