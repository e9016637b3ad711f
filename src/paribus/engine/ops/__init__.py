"""Model operations, computed by compiled kernels or by PyTorch.

`functional` provides the operations that models call, and `fused_block` computes a whole block.
Importing this package does not import torch.
"""

from paribus.engine.ops.kernels.compiling import identity, library
