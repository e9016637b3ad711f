"""The optimizers of a stack: a few kernels for each group of parameters, whatever the number of
replicas.

Axes: R replicas, N parameters of one replica, K matrices of one shape [n, m].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from paribus.engine.rows import Rows
from paribus.engine.training.groups import ParameterGroup
from paribus.engine.training.optimizers import Update
from paribus.errors import ParibusError


class StackedOptimizer:
    """Updates rows of weights in place, group by group, and keeps what optimizers keep.

    Args:
        groups: of all parameters, in the order in which they lie in a row.
        weights: the rows.

    Attributes:
        slots: {name: {parameter name: [R, ...]}}.
    """

    def __init__(self, groups: Sequence[ParameterGroup], weights: Rows) -> None:
        self.slots = {
            slot: _zeros(weights, [n for g in groups if slot in g.optimizer.slots for n in g.names])
            for slot in dict.fromkeys(slot for group in groups for slot in group.optimizer.slots)
        }
        self._parts = [_Part(group, weights, self.slots) for group in groups]

    @torch.no_grad()
    def update(self, grads_RN: Tensor, rates_R1: Tensor, t: Tensor) -> None:
        """One step in place. A replica whose learning rate is 0 keeps its weights.

        grads_RN: [R, N], which is written to. t: [], or [R, 1] of each replica.
        """
        for part in self._parts:
            part.update(grads_RN, rates_R1, t)


class _Run(NamedTuple):
    """Parameters that an optimizer is given at once: where they lie in a row, as [R, *shape]."""

    place: slice
    shape: tuple[int, ...]
    weights: Tensor
    slots: Mapping[str, Tensor]


class _Part:
    """A group of parameters, and where they lie."""

    def __init__(self, group: ParameterGroup, weights: Rows, slots: Mapping[str, Rows]) -> None:
        self._group = group
        sizes = [weights[name][0].numel() for name in group.names]
        start = weights.place(group.names).start
        self._decayed = slice(start, start + sum(sizes[: group.n_decayed]))
        self._decayed_weights = weights.flat[:, self._decayed]

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=weights.flat.device)[:, None]

        self._decays_R1 = column(group.decays)
        self._factors_R1 = None if set(group.factors) == {1.0} else column(group.factors)
        own = {slot: slots[slot] for slot in group.optimizer.slots}
        self._runs = []
        for names in _together(group, weights):
            one = weights[names[0]].shape[1:]
            shape = (len(names), *one) if group.optimizer.matrices else (-1,)
            place = weights.place(names)
            kept = {slot: _seen(x.flat[:, x.place(names)], shape) for slot, x in own.items()}
            seen = _seen(weights.flat[:, place], shape)
            self._runs.append(_Run(place, shape, seen, MappingProxyType(kept)))

    def update(self, grads_RN: Tensor, rates_R1: Tensor, t: Tensor) -> None:
        group = self._group
        if self._factors_R1 is not None:
            rates_R1 = rates_R1 * self._factors_R1
        if group.n_decayed and group.optimizer.decay == "coupled":
            grads_RN[:, self._decayed].addcmul_(self._decayed_weights, self._decays_R1)
        elif group.n_decayed:
            self._decayed_weights.mul_(1 - rates_R1 * self._decays_R1)
        for run in self._runs:
            grads = _seen(grads_RN[:, run.place], run.shape)
            rates, count = (_along(one, run.shape) for one in (rates_R1, t))
            _step(group, Update(run.weights, grads, run.slots, rates, count, group.options))


def _together(group: ParameterGroup, weights: Rows) -> list[tuple[str, ...]]:
    """All of a group at once; or for an optimizer of matrices, neighbours of one shape."""
    if not group.optimizer.matrices:
        return [group.names]
    by_shape = groupby(group.names, key=lambda name: weights[name].shape)
    return [tuple(names) for _, names in by_shape]


def _seen(x_RN: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[R, N] as an optimizer is given it: as it is, or as matrices."""
    return x_RN if len(shape) == 1 else x_RN.view(-1, *shape)


def _along(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[R, 1] as it goes with what `_seen` gives; [] as it is."""
    return x if len(shape) == 1 or x.ndim == 0 else x[..., None, None]


def _step(group: ParameterGroup, update: Update) -> None:
    """Raises ParibusError where the optimizer fails; what a GPU's recording refuses goes on."""
    name = group.optimizer.name
    tensors = {"weights": update.weights, **update.slots}
    places = {key: (tensor.data_ptr(), tensor.shape) for key, tensor in tensors.items()}
    try:
        given = group.optimizer.step(update)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and update.weights.is_cuda:
            raise
        shape = tuple(update.weights.shape)
        raise ParibusError(
            f"optimizer '{name}' failed on weights of shape {shape}: {type(error).__name__}: "
            f"{error}; it is called with one paribus.engine.training.Update"
        ) from error
    if given is not None:
        raise ParibusError(
            f"optimizer '{name}' gave {type(given).__name__}; it writes to update.weights and "
            "update.slots in place, and gives nothing"
        )
    for key, tensor in tensors.items():
        if (tensor.data_ptr(), tensor.shape) != places[key]:
            raise ParibusError(
                f"optimizer '{name}' puts another tensor in the place of '{key}', which no "
                "checkpoint would hold; let it write with copy_() or another operation in place"
            )


def _zeros(weights: Rows, names: Sequence[str]) -> Rows:
    """Zeros for some of the parameters."""
    return Rows.zeros({name: weights[name].shape[1:] for name in names}, weights.flat)
