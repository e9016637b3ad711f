"""The optimizers of a stack: a few kernels for each group of parameters, whatever the number of
replicas.

Axes: R replicas, N parameters of one replica, K matrices of one shape [n, m].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

import torch
from torch import Tensor

from paribus.errors import ParibusError
from paribus.model import Rows
from paribus.training.groups import ParameterGroup
from paribus.training.optimizers import Update


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

        grads_RN: [R, N], which is written to.
        """
        for part in self._parts:
            part.update(grads_RN, rates_R1, t)


class _Part:
    """A group of parameters, and where they lie."""

    def __init__(self, group: ParameterGroup, weights: Rows, slots: Mapping[str, Rows]) -> None:
        self._group = group
        place = weights.place(group.names)
        self._weights = weights.flat[:, place]
        self._place = place
        sizes = [weights[name][0].numel() for name in group.names]
        self._n_decayed = sum(sizes[: group.n_decayed])

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=weights.flat.device)[:, None]

        self._decays_R1 = column(group.decays)
        self._factors_R1 = None if set(group.factors) == {1.0} else column(group.factors)
        own = {slot: slots[slot] for slot in group.optimizer.slots}
        kept = {slot: rows.flat[:, rows.place(group.names)] for slot, rows in own.items()}
        if not group.optimizer.matrices:
            self._runs = [(slice(0, sum(sizes)), (sum(sizes),), kept)]
            return
        self._runs, start = [], 0
        shapes = [tuple(weights[name].shape[1:]) for name in group.names]
        for shape, equal in groupby(shapes):
            K = len(list(equal))
            run = slice(start, start + K * shape[0] * shape[1])
            views = {slot: _matrices(x[:, run], (K, *shape)) for slot, x in kept.items()}
            self._runs.append((run, (K, *shape), views))
            start = run.stop

    def update(self, grads_RN: Tensor, rates_R1: Tensor, t: Tensor) -> None:
        group = self._group
        grads, weights = grads_RN[:, self._place], self._weights
        if self._factors_R1 is not None:
            rates_R1 = rates_R1 * self._factors_R1
        if self._n_decayed:
            decayed = weights[:, : self._n_decayed]
            if group.optimizer.decay == "coupled":
                grads[:, : self._n_decayed].addcmul_(decayed, self._decays_R1)
            else:
                decayed.mul_(1 - rates_R1 * self._decays_R1)
        for run, shape, slots in self._runs:
            rates = rates_R1.view(-1, *(1 for _ in shape))
            update = Update(
                _matrices(weights[:, run], shape),
                _matrices(grads[:, run], shape),
                MappingProxyType(slots),
                rates,
                t,
                group.options,
            )
            _step(group, update)


def _step(group: ParameterGroup, update: Update) -> None:
    """Raises ParibusError where the optimizer fails; what a GPU's recording refuses goes on."""
    name = group.optimizer.name
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
            f"{error}; it is called with one paribus.training.Update"
        ) from error
    if given is not None:
        raise ParibusError(
            f"optimizer '{name}' gave {type(given).__name__}; it writes to update.weights and "
            "update.slots in place, and gives nothing"
        )


def _matrices(x_RN: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x_RN if len(shape) == 1 else x_RN.view(-1, *shape)


def _zeros(weights: Rows, names: Sequence[str]) -> Rows:
    """Zeros for some of the parameters."""
    return Rows.zeros({name: weights[name].shape[1:] for name in names}, weights.flat)
