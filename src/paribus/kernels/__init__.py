"""Kernels of our own, compiled where they run; PyTorch's do the same where they cannot be."""

from paribus.kernels.compiling import SWITCH, identity, library, resolve

__all__ = ["SWITCH", "identity", "library", "resolve"]
