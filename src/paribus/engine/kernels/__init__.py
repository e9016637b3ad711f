"""Kernels of our own, compiled where they run; PyTorch's do the same where they cannot be."""

from paribus.engine.kernels.compiling import (
    SWITCH,
    choose,
    identity,
    is_settled,
    library,
    resolve,
    shortcoming,
)

__all__ = ["SWITCH", "choose", "identity", "is_settled", "library", "resolve", "shortcoming"]
