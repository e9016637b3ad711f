"""The trainer `command`, which runs any program with a seed and reads its scores.

`sections` parses the study file, `sources` finds the code, `scores` reads numbers, `records`
compares trials, and `trainer` runs them. Nothing here imports PyTorch.
"""
