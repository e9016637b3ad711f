"""The one door to arithmetic: here is decided whether a compiled kernel or PyTorch answers.

`functional` has the operations that a model calls, and `fused_block` a whole block as one of them.
Which kernels a process takes is chosen here, without importing torch.
"""

from paribus.engine.ops.kernels.compiling import (
    SWITCH,
    choose,
    identity,
    is_settled,
    library,
    resolve,
    shortcoming,
    without_kernels,
)

__all__ = [
    "SWITCH",
    "choose",
    "identity",
    "is_settled",
    "library",
    "resolve",
    "shortcoming",
    "without_kernels",
]
