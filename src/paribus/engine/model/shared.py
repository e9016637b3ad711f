"""Tensors that the parts of a model share within a forward pass and that a loss may read.

A part whose `forward` has an argument `shared` receives the `Shared` of the pass. It may leave
named tensors for later parts, add to an auxiliary loss that its class declares
(`auxiliaries = ("balance",)`), and give outputs to a training loss, such as the logits of a second
head. Autograd traces all of it, and a `Shared` belongs to a single replica.

Axes: R replicas, B batch, T time, D d_model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from paribus.errors import ParibusError

AUXILIARIES = "auxiliaries"


class Seen(NamedTuple):
    """The argument `shared` of a training loss.

    Attributes:
        hidden: [R, B, T, D] input of the head.
        outputs: {name: [R, B, T, ...]} from `Shared.output`.
        auxiliary: {name: [R]} sums of auxiliary losses. The trainer adds them to the objective,
            times `training.loss.auxiliary`.
    """

    hidden: Tensor
    outputs: dict[str, Tensor]
    auxiliary: dict[str, Tensor]


class Shared(dict[str, Tensor]):
    """Tensors of one forward pass: `shared["name"] = tensor` leaves one for later parts.

    While a text is read with a cache, tensors are those of the new tokens. A head that is called on
    single positions finds nothing.

    Attributes:
        tokens: [B, T] int64 inputs; None for a head called by itself.
        hidden: [B, T, D] input of the head, once it is computed.
        outputs: {name: tensor} for a training loss.
    """

    def __init__(self, auxiliaries: Iterable[str] = ()) -> None:
        super().__init__()
        self.tokens: Tensor | None = None
        self.hidden: Tensor | None = None
        self.outputs: dict[str, Tensor] = {}
        self._declared = frozenset(auxiliaries)
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

    def output(self, name: str, value: Tensor) -> None:
        """Give a tensor [B, T, ...] to a training loss."""
        self.outputs[name] = value

    def seen(self) -> Seen:
        """Return the tensors for a loss; an auxiliary loss without terms is 0."""
        assert self.hidden is not None
        zero = self.hidden.new_zeros((), dtype=torch.float32)
        auxiliary = {name: self._auxiliary.get(name, zero) for name in sorted(self._declared)}
        return Seen(self.hidden, self.outputs, auxiliary)


@cache
def takes_shared(function: Any) -> bool:
    """Return True if a function has an argument `shared`."""
    try:
        return "shared" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin
        return False


def call(part: nn.Module, *args: Any, shared: Shared | None) -> Any:
    """Call a part of the model, with `shared` if its forward has that argument."""
    if takes_shared(type(part).forward):
        return part(*args, shared=shared)
    return part(*args)


def auxiliary_names(model: nn.Module) -> tuple[str, ...]:
    """Return the auxiliary losses that parts declare, sorted."""
    return tuple(sorted({n for part in model.modules() for n in getattr(part, AUXILIARIES, ())}))
