"""Tensors that the parts of a model share within a forward pass.

If a part's `forward` has an argument `shared`, it receives the pass's `Shared` object. The part can
store named tensors for later parts, and add to an auxiliary loss that its class declares
(`auxiliaries = ("balance",)`). Autograd tracks these tensors. Each replica has its own `Shared`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from paribus.errors import ParibusError

AUXILIARIES = "auxiliaries"


class Shared(dict[str, Tensor]):
    """Dictionary of tensors that parts store for later parts in a forward pass.

    With a key-value cache, tensors cover only the new tokens. A head that is evaluated at selected
    positions receives an empty `Shared`.
    """

    def __init__(self, auxiliaries: Iterable[str] = ()) -> None:
        super().__init__()
        self._declared = tuple(auxiliaries)
        self._auxiliary: dict[str, Tensor] = {}

    def auxiliary(self, name: str, value: Tensor) -> None:
        """Add a scalar, such as a mean over the batch, to an auxiliary loss.

        Values from all blocks are summed. Raises ParibusError if no part declares the name, or if
        the value is not a scalar.
        """
        if name not in self._declared or value.ndim:
            raise ParibusError(
                f"shared.auxiliary('{name}', value) requires a scalar value and a declared name; "
                f"add {AUXILIARIES} = ('{name}',) to the class of the part",
                code="own_code",
            )
        self._auxiliary[name] = self._auxiliary.get(name, 0.0) + value.float()

    def losses(self, logits: Tensor) -> dict[str, Tensor]:
        """Return all declared auxiliary losses, keyed by name, with 0 for unused ones.

        Args:
            logits: output of the pass, which determines the device of zeros.
        """
        zero = logits.new_zeros((), dtype=torch.float32)
        return {name: self._auxiliary.get(name, zero) for name in self._declared}


@cache
def takes_shared(function: Any) -> bool:
    """Return whether a function has an argument `shared`."""
    return "shared" in inspect.signature(function).parameters


def call(part: nn.Module, *args: Any, shared: Shared | None) -> Any:
    """Call a part of the model, passing `shared` only if its `forward` has that argument."""
    if takes_shared(type(part).forward):
        return part(*args, shared=shared)
    return part(*args)


def auxiliary_names(model: nn.Module) -> tuple[str, ...]:
    """Return the sorted names of the auxiliary losses that parts of `model` declare."""
    return tuple(sorted({n for part in model.modules() for n in getattr(part, AUXILIARIES, ())}))
