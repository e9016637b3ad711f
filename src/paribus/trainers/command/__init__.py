"""Anybody's program as a trainer: a command that is given its seed, and values that are read of it.

`sections` is what a study file says of it, `sources` where its code comes from, `reported` what it
says of itself, `records` how its records are read, and `trainer` holds all of this together. It is
run by `paribus.programs`. Nothing here imports PyTorch.
"""
