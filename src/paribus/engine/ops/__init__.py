"""Arithmetic of models: decides whether a compiled kernel or PyTorch computes an operation.

`functional` has the operations that a model calls; `fused_block` computes a whole block. Choosing
the kernels of a process does not import torch.
"""

from paribus.engine.ops.kernels.compiling import identity, library
