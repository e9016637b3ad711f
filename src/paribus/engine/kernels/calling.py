"""What our functions for PyTorch share: whether a kernel can be asked, and how it is."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import NoReturn

import torch
from torch import Tensor

from paribus.engine.kernels.compiling import SWITCH, library
from paribus.errors import ParibusError

TOLERANCE = 1e-5
DTYPES = (torch.float32, torch.bfloat16)


_turned_off = False


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Within, PyTorch's kernels do the work: for comparisons in one process."""
    global _turned_off
    before, _turned_off = _turned_off, True
    try:
        yield
    finally:
        _turned_off = before


def kernels(is_right: Callable[[ctypes.CDLL], bool], what: str) -> ctypes.CDLL | None:
    """The loaded library; None where there is none.

    Args:
        is_right: whether it gives a few known numbers: a compiler can be wrong.
        what: those functions of it, for people.

    Raises ParibusError where it computes something else than it should.
    """
    return None if _turned_off else _checked(is_right, what)


@cache
def _checked(is_right: Callable[[ctypes.CDLL], bool], what: str) -> ctypes.CDLL | None:
    path = library()
    if path is None:
        return None
    found = ctypes.CDLL(str(path))
    if not is_right(found):
        raise ParibusError(
            f"{what} compiled on this machine gives wrong numbers ({path}); "
            f"set {SWITCH}=off, which takes PyTorch's"
        )
    return found


def are_plain(*tensors: Tensor | None) -> bool:
    """Whether all are tensors of the CPU whose numbers a kernel can read at their address: not
    mapped or differentiated by `torch.func`, of float32 or bfloat16, and to stay so."""
    return (
        not torch._C._are_functorch_transforms_active()
        and all(x is None or (x.is_cpu and x.dtype in DTYPES) for x in tensors)
        and not rounds_otherwise()
    )


def rounds_otherwise() -> bool:
    """Whether autocast for the CPU is to a type that no kernel of ours has, such as float16."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") not in DTYPES


def lower_dtype() -> torch.dtype | None:
    """bfloat16 inside autocast for the CPU to it, and else None."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    dtype = torch.get_autocast_dtype("cpu")
    return dtype if dtype == torch.bfloat16 else None


def address(x: Tensor | None) -> int | None:
    """Where the numbers of a contiguous tensor begin; None of None, which is C's null."""
    return None if x is None else x.data_ptr()


def refuse_second_derivative(what: str) -> NoReturn:
    """Raise ParibusError: our gradients have none."""
    raise ParibusError(
        f"compiled {what} can be differentiated once, not twice; set {SWITCH}=off, which takes "
        "PyTorch's"
    )
