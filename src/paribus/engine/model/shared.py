"""What the parts of a model hand on in one forward pass, and what a loss may see of it.

A module whose `forward` has an argument `shared` is given one `Shared` for the whole pass: at
`embedding`, `block_norm`, `attention`, `mlp`, `final_norm` and `head` alike. It may leave tensors
there for later parts, under names; add to an auxiliary loss that its class declares
(`auxiliaries = ("balance",)`); and give outputs that a training loss reads, such as the logits of a
second head. All of it is traced by autograd, and of one replica alone.

Axes: R replicas, B batch, T time, D d_model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from paribus.errors import ParibusError

AUXILIARIES = "auxiliaries"


class Seen(NamedTuple):
    """What a training loss sees besides logits: the argument `shared` of a loss that has it.

    Attributes:
        hidden: [R, B, T, D], what the head reads.
        outputs: {name: [R, B, T, ...]}, what parts gave by `Shared.output`.
        auxiliary: {name: [R]}, the sums of auxiliary losses. They are added to the objective times
            `training.loss.auxiliary`, whatever the loss does.
    """

    hidden: Tensor
    outputs: dict[str, Tensor]
    auxiliary: dict[str, Tensor]


class Shared:
    """One forward pass: `shared["name"] = tensor` leaves it for later parts, `shared["name"]` is
    what an earlier one left, `"name" in shared` tells whether one did.

    While a text is read piece by piece, tensors are those of the new tokens; what later tokens need
    an attention appends to its cache. A head that is asked for single positions finds nothing here.

    Attributes:
        tokens: [B, T] int64 inputs, None in such a head.
        hidden: [B, T, D] what the head reads, once it is there.
        outputs: {name: tensor} that a training loss reads.
    """

    def __init__(self, auxiliaries: Iterable[str] = ()) -> None:
        self.tokens: Tensor | None = None
        self.hidden: Tensor | None = None
        self.outputs: dict[str, Tensor] = {}
        self._values: dict[str, Tensor] = {}
        self._declared = frozenset(auxiliaries)
        self._auxiliary: dict[str, Tensor] = {}

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._values[name] = value

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            raise ParibusError(
                f"shared['{name}'] was not left by any earlier part; there are "
                f"{', '.join(map(repr, self._values)) or 'none'}"
            )
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def auxiliary(self, name: str, value: Tensor) -> None:
        """Add a number [] to an auxiliary loss; those of all blocks are summed.

        Raises ParibusError for a name that no class declares, and for more than a number.
        """
        if name not in self._declared:
            raise ParibusError(
                f"shared.auxiliary('{name}', ...): no part declares it; say {AUXILIARIES} = "
                f"('{name}',) in its class"
            )
        if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
            given = type(value).__name__
            if isinstance(value, Tensor):
                given = f"{list(value.shape)} of {value.dtype}"
            raise ParibusError(
                f"shared.auxiliary('{name}', ...) is given {given}, and takes a number: a tensor "
                "of floats without axes, such as a mean over the batch"
            )
        before = self._auxiliary.get(name)
        self._auxiliary[name] = value.float() if before is None else before + value.float()

    def output(self, name: str, value: Tensor) -> None:
        """Give a training loss a tensor [B, T, ...] under a name. Raises ParibusError for else."""
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        of = None if self.tokens is None else list(self.tokens.shape)
        if not isinstance(value, Tensor) or of not in (None, shape[:2]):
            raise ParibusError(
                f"shared.output('{name}', ...) is given {shape}, and takes a tensor [B, T, ...], a "
                "row for every token"
            )
        self.outputs[name] = value

    def seen(self) -> Seen:
        """Return what a loss sees; an auxiliary loss that nothing was added to is 0."""
        assert self.hidden is not None
        zero = self.hidden.new_zeros((), dtype=torch.float32)
        auxiliary = {name: self._auxiliary.get(name, zero) for name in sorted(self._declared)}
        return Seen(self.hidden, self.outputs, auxiliary)


def takes_shared(function: Any) -> bool:
    """Tell whether a function has an argument `shared`."""
    try:
        return "shared" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # not of Python
        return False


def auxiliary_names(model: nn.Module) -> tuple[str, ...]:
    """Return the auxiliary losses that parts of `model` declare, sorted. Raises ParibusError."""
    names: set[str] = set()
    for module in model.modules():
        found = getattr(module, AUXILIARIES, ())
        if not isinstance(found, tuple) or not all(
            isinstance(name, str) and name.isidentifier() for name in found
        ):
            raise ParibusError(
                f"{type(module).__name__}.{AUXILIARIES} = {found!r} must be a tuple of names, such "
                "as ('balance',)"
            )
        names |= set(found)
    return tuple(sorted(names))
