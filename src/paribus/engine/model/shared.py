"""Tensors that the parts of a model share within a forward pass.

A part whose `forward` has an argument `shared` receives the `Shared` of the pass. It may leave
named tensors for later parts, and add to an auxiliary loss that its class declares
(`auxiliaries = ("balance",)`). Autograd traces all of it, and a `Shared` belongs to a single
replica.
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
    """Tensors of one forward pass: `shared["name"] = tensor` leaves one for later parts.

    While a text is read with a cache, tensors are those of the new tokens. A head that is called on
    single positions finds nothing.
    """

    def __init__(self, auxiliaries: Iterable[str] = ()) -> None:
        super().__init__()
        self._declared = tuple(auxiliaries)
        self._auxiliary: dict[str, Tensor] = {}

    def auxiliary(self, name: str, value: Tensor) -> None:
        """Add a scalar, such as a mean over the batch, to an auxiliary loss; values of all blocks
        are summed. Raises ParibusError for a name that no class declares."""
        if name not in self._declared or value.ndim:
            raise ParibusError(
                f"shared.auxiliary('{name}', ...) needs a scalar, and {AUXILIARIES} = ('{name}',) "
                "in the class of its part",
                code="own_code",
            )
        self._auxiliary[name] = self._auxiliary.get(name, 0.0) + value.float()

    def losses(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the auxiliary losses of the pass that computed `logits`; 0 without terms."""
        zero = logits.new_zeros((), dtype=torch.float32)
        return {name: self._auxiliary.get(name, zero) for name in self._declared}


@cache
def takes_shared(function: Any) -> bool:
    """Return True if a function has an argument `shared`."""
    return "shared" in inspect.signature(function).parameters


def call(part: nn.Module, *args: Any, shared: Shared | None) -> Any:
    """Call a part of the model, with `shared` if its forward has that argument."""
    if takes_shared(type(part).forward):
        return part(*args, shared=shared)
    return part(*args)


def auxiliary_names(model: nn.Module) -> tuple[str, ...]:
    """Return the auxiliary losses that parts declare, sorted."""
    return tuple(sorted({n for part in model.modules() for n in getattr(part, AUXILIARIES, ())}))
