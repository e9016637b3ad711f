"""Trainer `command`, which runs any program with a seed and reads its scores.

`sections` parses the study file, `sources` locates the code, `scores` reads the output, `records`
compares trials, and `trainer` runs them. This package does not import PyTorch.
"""
