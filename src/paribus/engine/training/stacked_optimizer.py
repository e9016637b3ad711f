"""Optimizer steps of a stack: rows of weights, updated group by group.

Axes: R replicas, N parameters of one replica, K parameters of one shape, S schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paribus.engine.rows import Rows
from paribus.engine.training.groups import ParameterGroup
from paribus.engine.training.optimizers import Update
from paribus.engine.training.schedules import DECAY, MOMENTUM


class StackedOptimizer:
    """Updates rows of weights in place, and keeps the slots of the optimizers.

    Args:
        groups: All groups, in the order in which their parameters lie in a row.
        weights: The rows.
        scheduled: Names of the schedules that `update` receives.

    Attributes:
        slots: {slot: {parameter name: [R, ...]}}.
        moves_weights: True if the evaluated weights are not the trained ones.
    """

    def __init__(
        self, groups: Sequence[ParameterGroup], weights: Rows, scheduled: Sequence[str] = ()
    ) -> None:
        self._scheduled = scheduled
        self._weights = weights
        names = dict.fromkeys(slot for group in groups for slot in group.optimizer.slots)
        self.slots = {
            slot: Rows.zeros(_slot_shapes(slot, groups, weights), weights.flat) for slot in names
        }
        self._groups = [_StackedGroup(group, weights, self.slots) for group in groups]
        self.moves_weights = any(group.optimizer.evaluated for group in groups)

    @torch.no_grad()
    def update(
        self, grads_RN: Tensor, rates_R1: Tensor, t: Tensor, scheduled_SR1: Iterable[Tensor] = ()
    ) -> None:
        """Make one step. A replica with a learning rate of 0 keeps its weights.

        grads_RN is overwritten. t is [], or [R, 1] if replicas have made different numbers of
        steps.
        """
        scheduled = dict(zip(self._scheduled, scheduled_SR1, strict=True))
        for group in self._groups:
            group.update(grads_RN, rates_R1, scheduled, t)

    @torch.no_grad()
    def afterwards(self, t: int) -> None:
        """Call the optimizers' `afterwards` on the host after step t."""
        for group in self._groups:
            group.afterwards(t)

    @torch.no_grad()
    def evaluated(self) -> Rows:
        """Return the weights to evaluate: the trained ones, or those the optimizers derive."""
        if not self.moves_weights:
            return self._weights
        weights = self._weights.clone()
        for group in self._groups:
            group.evaluate(weights.flat)
        return weights


class _Run(NamedTuple):
    """Adjacent parameters that an optimizer updates in one call.

    Attributes:
        place: Their place in a row.
        shape: (-1,) for rows; (K, *shape) for whole parameters.
        weights: Their weights, [R, *shape].
        slots: Their slots.
        decays: True if their decay is left to the optimizer.
    """

    place: slice
    shape: tuple[int, ...]
    weights: Tensor
    slots: Mapping[str, Tensor]
    decays: bool


class _StackedGroup:
    """A parameter group of a stack."""

    def __init__(self, group: ParameterGroup, weights: Rows, slots: Mapping[str, Rows]) -> None:
        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=weights.flat.device)[:, None]

        self._group = group
        self._decays_R1 = column(group.decays)
        self._factors_R1 = None if set(group.factors) == {1.0} else column(group.factors)
        self._decayed = weights.place(group.decayed) if group.decayed else slice(0, 0)
        self._decayed_weights = weights.flat[:, self._decayed]
        self._runs = [_run(group, names, weights, slots) for names in _runs(group, weights)]

    def update(
        self, grads_RN: Tensor, rates_R1: Tensor, scheduled: Mapping[str, Tensor], t: Tensor
    ) -> None:
        group, optimizer, decays_R1 = self._group, self._group.optimizer, self._decays_R1
        if group.schedule:
            rates_R1 = scheduled[group.schedule]
        elif self._factors_R1 is not None:
            rates_R1 = rates_R1 * self._factors_R1
        if DECAY in scheduled:
            decays_R1 = decays_R1 * scheduled[DECAY]
        if group.n_decayed and optimizer.decay == "coupled":
            grads_RN[:, self._decayed].addcmul_(self._decayed_weights, decays_R1)
        elif group.n_decayed and optimizer.decay == "decoupled":
            self._decayed_weights.mul_(1 - rates_R1 * decays_R1)
        momentum = getattr(group.options, optimizer.momentum, 0.0)
        if MOMENTUM in scheduled:
            momentum = scheduled[MOMENTUM] * momentum
        for run in self._runs:
            optimizer.step(
                Update(
                    weights=run.weights,
                    gradients=_view(grads_RN[:, run.place], run.shape),
                    slots=run.slots,
                    rates=_broadcast(rates_R1, run.shape),
                    t=_broadcast(t, run.shape),
                    options=group.options,
                    momentum=_broadcast(momentum, run.shape),
                    decay=_broadcast(decays_R1, run.shape) if run.decays else 0.0,
                )
            )

    def afterwards(self, t: int) -> None:
        optimizer = self._group.optimizer
        if optimizer.afterwards:
            for run in self._runs:
                optimizer.afterwards(run.slots, self._group.options, t)

    def evaluate(self, flat_RN: Tensor) -> None:
        """Write the weights to evaluate into their place in `flat_RN`."""
        optimizer, options = self._group.optimizer, self._group.options
        if optimizer.evaluated:
            for run in self._runs:
                weights = optimizer.evaluated(run.weights, run.slots, options)
                flat_RN[:, run.place] = weights.reshape(len(weights), -1)


def _runs(group: ParameterGroup, weights: Rows) -> list[tuple[str, ...]]:
    """Split the names of a group into those that its optimizer is called with together."""
    optimizer = group.optimizer

    def key(name: str) -> tuple[object, ...]:
        shape = weights[name].shape if optimizer.sees_shapes else None
        return optimizer.decay == "own" and name in group.decayed, shape

    return [tuple(names) for _, names in groupby(group.names, key=key)]


def _run(
    group: ParameterGroup, names: tuple[str, ...], weights: Rows, slots: Mapping[str, Rows]
) -> _Run:
    optimizer, place = group.optimizer, weights.place(names)
    own_shape = tuple(weights[names[0]].shape[1:])

    def run_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
        return (len(names), *shape) if optimizer.sees_shapes else (-1,)

    views = {}
    for slot in optimizer.slots:
        slot_shape = optimizer.slot_shape(slot, own_shape, group.options)
        if slot_shape is not None:
            rows = slots[slot]
            views[slot] = _view(rows.flat[:, rows.place(names)], run_shape(slot_shape))
    return _Run(
        place=place,
        shape=run_shape(own_shape),
        weights=_view(weights.flat[:, place], run_shape(own_shape)),
        slots=MappingProxyType(views),
        decays=optimizer.decay == "own" and names[0] in group.decayed,
    )


def _view(x_RN: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return [R, *shape]."""
    return x_RN if len(shape) == 1 else x_RN.view(-1, *shape)


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """Return a tensor [R, 1] with the axes of [R, *shape]; a number or [] unchanged."""
    if not isinstance(x, Tensor) or x.ndim == 0 or len(shape) == 1:
        return x
    return x.view(*x.shape, *(1,) * (len(shape) - 1))


def _slot_shapes(
    slot: str, groups: Sequence[ParameterGroup], weights: Rows
) -> dict[str, torch.Size]:
    """Return the shapes of a slot, by parameter name."""
    shapes = {}
    for group in groups:
        for name in group.names if slot in group.optimizer.slots else ():
            shape = group.optimizer.slot_shape(slot, tuple(weights[name].shape[1:]), group.options)
            if shape is not None:
                shapes[name] = torch.Size(shape)
    return shapes
