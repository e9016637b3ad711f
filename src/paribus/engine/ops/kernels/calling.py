"""Helpers for calling kernels: library loading, tensor checks and tensor addresses."""

from __future__ import annotations

from ctypes import Array, c_int64
from functools import cache
from typing import Any

import torch
from torch import Tensor

from paribus.engine.ops.kernels import compiling

DTYPES = (torch.float32, torch.bfloat16)


@cache
def kernels() -> Any:
    """Load the kernel library once per process; return None if it is not available."""
    path = compiling.library()
    return None if path is None else compiling.open_library(path)


def can_read(*tensors: Tensor | None) -> bool:
    """Return whether kernels are available and can read all tensors from memory.

    Tensors must be on a CPU, in float32 or bfloat16, and not transformed by `torch.func`.
    """
    return (
        not torch._C._are_functorch_transforms_active()
        and all(x is None or (x.is_cpu and x.dtype in DTYPES) for x in tensors)
        and kernels() is not None  # last: it may compile them
    )


def product_dtype() -> torch.dtype:
    """Return the dtype of matrix products: bfloat16 under autocast, otherwise float32."""
    return torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32


def int64s(*numbers: int) -> Array[c_int64]:
    """Return a C array of int64 numbers, such as addresses, sizes and strides."""
    return (c_int64 * len(numbers))(*numbers)


def address(x: Tensor | None) -> int | None:
    """Return the data pointer of a contiguous tensor, or None (a null pointer) for None."""
    return None if x is None else x.data_ptr()
