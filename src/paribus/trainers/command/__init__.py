"""Anybody's program as a trainer: a command that is given its seed, and values that are read of it.

`sections` is what a study file says of it, `sources` where its code comes from, `worker` and
`process` run it, `values` and `reported` read what it gave, `records` how its records are read, and
`trainer` holds all of this together. Nothing here imports PyTorch.
"""
