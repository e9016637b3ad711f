"""Calling kernels: the loaded library, and which tensors it can read."""

from __future__ import annotations

from ctypes import CDLL
from functools import cache
from typing import NoReturn

import torch
from torch import Tensor

from paribus.engine.ops.kernels import compiling
from paribus.engine.ops.kernels.self_check import wrong_numbers
from paribus.errors import ParibusError

DTYPES = (torch.float32, torch.bfloat16)


@cache
def loaded() -> CDLL | None:
    """Return the compiled library, checked against float64; None where there is none.

    Raises ParibusError where it computes something else than it should: a compiler can be wrong.
    """
    path = compiling.library()
    if path is None:
        return None
    found = compiling.open_library(path)
    if wrong := wrong_numbers(found):
        raise ParibusError(
            f"{wrong} compiled on this machine gives wrong numbers ({path}); "
            f"set {compiling.SWITCH}=off, which takes PyTorch's"
        )
    return found


def has_kernels() -> bool:
    """Tell whether kernels are there and wanted."""
    return not compiling.is_turned_off() and loaded() is not None


def kernels() -> CDLL:
    """Return the library, where `has_kernels`."""
    found = loaded()
    assert found is not None
    return found


def are_plain(*tensors: Tensor | None) -> bool:
    """Tell whether a kernel can read all of them at their address.

    They are on a CPU, of float32 or bfloat16, and neither mapped nor differentiated by
    `torch.func`; and autocast is to no type that kernels lack.
    """
    return (
        not torch._C._are_functorch_transforms_active()
        and all(x is None or (x.is_cpu and x.dtype in DTYPES) for x in tensors)
        and not rounds_otherwise()
    )


def rounds_otherwise() -> bool:
    """Tell whether autocast for the CPU is to a type that kernels lack, such as float16."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") not in DTYPES


def lower_dtype() -> torch.dtype | None:
    """Return bfloat16 inside autocast for the CPU to it, and else None."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    dtype = torch.get_autocast_dtype("cpu")
    return dtype if dtype == torch.bfloat16 else None


def address(x: Tensor | None) -> int | None:
    """Return the address of a contiguous tensor's numbers; None, C's null, of None."""
    return None if x is None else x.data_ptr()


def refuse_second_derivative(what: str) -> NoReturn:
    """Raise ParibusError: gradients of kernels cannot be differentiated."""
    raise ParibusError(
        f"compiled {what} can be differentiated once, not twice; set {compiling.SWITCH}=off, which "
        "takes PyTorch's"
    )
