"""Optimizer steps for all replicas, applied one parameter group at a time.

Axes: R replicas, N parameters in one replica, K parameters with one shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from paribus.engine.rows import Rows
from paribus.engine.training.groups import ParameterGroup
from paribus.engine.training.optimizers import Update


class _Run(NamedTuple):
    """Adjacent parameters that an optimizer updates in one call."""

    place: slice  # slice of the flattened weights
    weights: Tensor  # [R, N], or [R, K, *shape] for whole parameters
    slots: Mapping[str, Tensor]  # optimizer state
    decays: bool  # whether the optimizer itself applies weight decay


class StackedOptimizer:
    """Optimizer that updates the weights of all replicas in place.

    Args:
        groups: All parameter groups, in the order of their parameters in `weights`.
        weights: Weights of all replicas.

    Attributes:
        slots: {slot: {parameter name: [R, ...]}} optimizer state.
    """

    def __init__(self, groups: Sequence[ParameterGroup], weights: Rows) -> None:
        def column(values: Sequence[float]) -> Tensor:
            return weights.flat.new_tensor(values)[:, None]

        self._weights = weights
        shapes: dict[str, dict[str, torch.Size]] = {}
        for group in groups:
            for slot in group.optimizer.slots:
                shapes.setdefault(slot, {})
                for name in group.names:
                    own_shape = tuple(weights[name].shape[1:])
                    shape = group.optimizer.slot_shape(slot, own_shape, group.options)
                    if shape is not None:
                        shapes[slot][name] = torch.Size(shape)
        self.slots = {slot: Rows.zeros(each, weights.flat) for slot, each in shapes.items()}
        # Each group with its runs, learning rate factors [R, 1] and weight decays [R, 1].
        self._groups = [
            (group, self._runs(group), *map(column, (group.factors, group.decays)))
            for group in groups
        ]

    def _runs(self, group: ParameterGroup) -> list[_Run]:
        """Split a group into runs of adjacent parameters that share an optimizer call."""
        optimizer, weights = group.optimizer, self._weights

        def key(name: str) -> tuple[bool, object]:
            shape = weights[name].shape if optimizer.whole_parameters else None
            return optimizer.decay == "own" and name in group.decayed, shape

        def view(rows: Rows, names: tuple[str, ...]) -> Tensor:
            flat = rows.flat[:, rows.place(names)]
            if not optimizer.whole_parameters:
                return flat
            return flat.view(-1, len(names), *rows[names[0]].shape[1:])

        runs = []
        for (decays, _), same in groupby(group.names, key=key):
            names = tuple(same)
            kept = [slot for slot in optimizer.slots if names[0] in self.slots[slot]]
            slots = {slot: view(self.slots[slot], names) for slot in kept}
            runs.append(_Run(weights.place(names), view(weights, names), slots, decays))
        return runs

    @torch.no_grad()
    def update(self, grads_RN: Tensor, rates_R1: Tensor, t: Tensor) -> None:
        """Update weights and slots in place. A replica with learning rate 0 keeps its weights.

        Args:
            grads_RN: clipped gradients.
            rates_R1: learning rate of each replica.
            t: 0-based step index, int64 [].
        """
        for group, runs, factors_R1, decays_R1 in self._groups:
            optimizer, own_rates_R1 = group.optimizer, rates_R1
            if set(group.factors) != {1.0}:
                own_rates_R1 = rates_R1 * factors_R1
            if group.decayed and optimizer.decay != "own":
                decayed = self._weights.flat[:, self._weights.place(group.decayed)]
                decayed.mul_(1 - own_rates_R1 * decays_R1)
            for run in runs:
                weights = run.weights
                optimizer.function(
                    Update(
                        weights=weights,
                        gradients=grads_RN[:, run.place].view(weights.shape),
                        slots=run.slots,
                        rates=_broadcast(own_rates_R1, weights),
                        t=t,
                        options=group.options,
                        decay=_broadcast(decays_R1, weights) if run.decays else 0.0,
                    )
                )

    @torch.no_grad()
    def afterwards(self, t: int) -> None:
        """Call the optimizers' `afterwards` functions on the host after step t."""
        for group, runs, *_ in self._groups:
            if group.optimizer.afterwards:
                for run in runs:
                    group.optimizer.afterwards(run.slots, group.options, t)

    @torch.no_grad()
    def evaluated(self) -> Rows:
        """Return the weights to evaluate, which optimizers may derive from the trained weights."""
        rows = self._weights
        for group, runs, *_ in self._groups:
            if (evaluated := group.optimizer.evaluated) is None:
                continue
            rows = self._weights.clone() if rows is self._weights else rows
            for run in runs:
                derived = evaluated(run.weights, run.slots, group.options)
                rows.flat[:, run.place] = derived.reshape(len(derived), -1)
        return rows


def _broadcast(x: Tensor, target: Tensor) -> Tensor:
    """Append axes of size 1 to x [R, 1] until it has as many axes as `target`."""
    return x.view(*x.shape, *(1,) * (target.ndim - 2))
