"""Parameter groups: the optimizer, options, learning rate and weight decay of each, and its steps.

A study names one optimizer, and may give parameters of a pattern another one, or a learning rate or
weight decay of their own (`training.optimizer.groups`). An optimizer that is not for a parameter,
such as Muon for a bias, leaves it to another.

Axes: R replicas, N parameters of one replica, K parameters of one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from paribus.engine.model import ParameterUse, parameter_uses
from paribus.engine.rows import Rows, role
from paribus.engine.setting import Setting, Training
from paribus.engine.setting.setting import Group as GroupSpec
from paribus.engine.setting.setting import Optimizer as OptimizerSpec
from paribus.engine.training.optimizers import (
    Optimizer,
    Options,
    Update,
    find_optimizer,
    takes_all,
)
from paribus.engine.training.optimizers.adamw import AdamWOptions
from paribus.engine.training.schedules import group_column, scheduled_columns
from paribus.errors import ParibusError, blamed, nearest
from paribus.study.choices import read_options

KEY = "training.optimizer"
DECAY, MOMENTUM = "weight_decay_fraction", "momentum_fraction"  # columns of schedules
SHARED = ("betas", "eps")  # options that are keys of `training.optimizer` itself


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are updated together.

    Attributes:
        optimizer, options: what with.
        names: of the parameters; those that are decayed come first, and those of one role lie
            together.
        n_decayed: so many of them.
        factors: one per replica, its learning rate relative to that of the study.
        decays: one per replica, its weight decay.
        schedule: the column of their learning rate, where they have a schedule of their own.
    """

    optimizer: Optimizer
    options: Options
    names: tuple[str, ...]
    n_decayed: int
    factors: tuple[float, ...]
    decays: tuple[float, ...]
    schedule: str = ""


def is_decayed(use: ParameterUse, decay: str) -> bool:
    """Tell whether weight decay touches a parameter, under `training.optimizer.decay`."""
    return use.decays and (decay == "matrices" or not use.table)


def parameter_groups(
    settings: Sequence[Setting], model: nn.Module, folder: Path | None
) -> list[ParameterGroup]:
    """Return the groups of `model`'s parameters, `settings` being one per replica.

    Raises ParibusError for an unknown optimizer or option, a pattern that no parameter has, and an
    optimizer that its group's parameters are not for.
    """
    spec = settings[0].training.optimizer
    uses = parameter_uses(model)
    found = _Found(spec, folder)
    members: dict[tuple[int, str], list[str]] = {}
    named = dict(sorted(model.named_parameters(), key=lambda named: role(named[0])))
    for name, parameter in named.items():
        at = next((i for i, g in enumerate(spec.groups) if fnmatchcase(name, g.match)), -1)
        optimizer = found.of(at)
        if not _takes(optimizer, name, tuple(parameter.shape), uses[name]):
            if at >= 0 and spec.groups[at].optimizer is not None:
                raise ParibusError(
                    f"{KEY}.groups: '{optimizer.name}' is not for '{name}', of shape "
                    f"{tuple(parameter.shape)}, which '{spec.groups[at].match}' matches; give it "
                    "a group of its own before this one"
                )
            optimizer = found.rest(optimizer)
        members.setdefault((at, optimizer.name), []).append(name)
    _require_matches(spec.groups, {at for at, _ in members}, list(named))
    found.require_read({name for _, name in members})
    found.require_used({at for at, _ in members}, {name for _, name in members})

    groups = []
    for (at, optimizer), names in sorted(members.items(), key=found.place):
        decayed = [name for name in names if is_decayed(uses[name], spec.decay)]
        others = [name for name in names if name not in decayed]
        rates = [_factor_and_decay(one.training.optimizer, at) for one in settings]
        groups.append(
            ParameterGroup(
                found.named[optimizer],
                found.options(at, optimizer),
                (*decayed, *others),
                len(decayed),
                tuple(factor for factor, _ in rates),
                tuple(decay for _, decay in rates),
                group_column(at) if at >= 0 and spec.groups[at].schedule else "",
            )
        )
    if MOMENTUM in scheduled_columns(settings[0].training) and not any(
        group.optimizer.momentum for group in groups
    ):
        raise ParibusError(
            "training.schedules.momentum: no parameter is trained by an optimizer with a momentum "
            "that can be scheduled, such as muon or sgd; leave it out"
        )
    return groups


def optimizer_record(groups: Sequence[ParameterGroup], model: nn.Module) -> list[dict[str, Any]]:
    """Return what a trial's record says of its optimizer: a table per group, with all options."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return [
        {
            "optimizer": group.optimizer.name,
            "options": group.options.model_dump(mode="json"),
            "slots": list(group.optimizer.slots),
            "tensors": len(group.names),
            "parameters": sum(sizes[name] for name in group.names),
        }
        for group in groups
    ]


def optimizer_slots(training: Training, folder: Path | None) -> tuple[str, ...]:
    """Return every slot that the optimizers of `training` keep, theirs first that it names.

    Raises ParibusError for an unknown optimizer.
    """
    found = _Found(training.optimizer, folder)
    named = [found.of(number) for number in range(-1, len(training.optimizer.groups))]
    rests = [found.rest(one) for one in named if one.takes is not takes_all]
    return tuple(dict.fromkeys(slot for one in (*named, *rests) for slot in one.slots))


class _Found:
    """The optimizers that a study names, and those that they leave parameters to.

    A group's number is its place in the study; -1 are the parameters that no group matches.
    """

    def __init__(self, spec: OptimizerSpec, folder: Path | None) -> None:
        self._spec, self._folder = spec, folder
        self.named: dict[str, Optimizer] = {}
        wanted = {-1: (spec.name, f"{KEY}.name")}
        for i, group in enumerate(spec.groups):
            wanted[i] = (group.optimizer or spec.name, f"{KEY}.groups[{i}].optimizer")
        self._of = {i: self._keep(find_optimizer(*one, folder)) for i, one in wanted.items()}
        for i, optimizer in self._of.items():
            self.options(i, optimizer.name)

    def of(self, number: int) -> Optimizer:
        return self._of[number]

    def rest(self, optimizer: Optimizer) -> Optimizer:
        found = self._keep(find_optimizer(optimizer.rest, f"rest of '{optimizer.name}'", None))
        if found.takes is not takes_all:
            raise ParibusError(
                f"optimizer '{optimizer.name}' leaves parameters to '{found.name}', which is not "
                "for all of them either; let its rest be one that is, such as 'adamw'"
            )
        return found

    def place(self, member: tuple[tuple[int, str], object]) -> tuple[int, bool]:
        """Order by number; before what an optimizer leaves to another comes what it takes."""
        number, name = member[0]
        return number, name != self._of[number].name

    def options(self, number: int, name: str) -> Options:
        """Return options of a group's optimizer; of what it leaves to another, that one's own.

        Raises ParibusError for options that it does not have.
        """
        model = self.named[name].options
        given: dict[str, Any] = {
            key: getattr(self._spec, key) for key in SHARED if self._reads_shared(name, key)
        }
        where = f"{KEY}.options"
        if name == self._of[-1].name:
            given |= self._spec.options
        group = self._spec.groups[number] if number >= 0 else None
        if group and group.options and name == self._of[number].name:
            where = f"{KEY}.groups[{number}].options"
            given |= group.options
        return read_options(model, given, where, name)

    def require_read(self, used: set[str]) -> None:
        """Raise ParibusError where the study sets betas or eps twice, or no optimizer reads
        them."""
        for key in SHARED:
            default = OptimizerSpec.model_fields[key].default
            if getattr(self._spec, key) == default:
                continue
            if key in self._spec.options:
                raise ParibusError(f"{KEY}.{key} and {KEY}.options.{key} say one thing; keep one")
            if not any(self._reads_shared(name, key) for name in used):
                raise ParibusError(
                    f"{KEY}.{key} is AdamW's, and no parameter is trained with it; those of "
                    f"'{self._spec.name}' are in {KEY}.options"
                )

    def require_used(self, numbers: set[int], used: set[str]) -> None:
        """Raise ParibusError where the optimizer of the study has no parameter at all."""
        groups = self._spec.groups
        left = [i for i in numbers if i < 0 or groups[i].optimizer is None]
        if left and self._of[-1].name not in used:
            raise ParibusError(
                f"{KEY}.name = '{self._spec.name}' is for no parameter of this model: all would be "
                f"trained with '{self._of[-1].rest}'; name that one, or let `takes` take some"
            )

    def _reads_shared(self, name: str, key: str) -> bool:
        return issubclass(self.named[name].options, AdamWOptions)

    def _keep(self, optimizer: Optimizer) -> Optimizer:
        if self.named.setdefault(optimizer.name, optimizer) is not optimizer:
            raise ParibusError(
                f"{KEY}: two optimizers are named '{optimizer.name}'; give yours another name"
            )
        return optimizer


def _takes(optimizer: Optimizer, name: str, shape: tuple[int, ...], use: ParameterUse) -> bool:
    """Tell whether a parameter is for an optimizer. Raises ParibusError where that cannot be."""
    what = f"optimizer '{optimizer.name}': its takes(shape, use) failed for '{name}', of shape"
    with blamed(f"{what} {shape}"):
        takes = optimizer.takes(shape, use)
    if takes and optimizer.matrices and len(shape) != 2:
        raise ParibusError(
            f"optimizer '{optimizer.name}' is given matrices, and takes '{name}', of shape "
            f"{shape}; let its takes(shape, use) leave that to '{optimizer.rest}'"
        )
    return takes


def _require_matches(groups: Sequence[GroupSpec], met: set[int], names: list[str]) -> None:
    for i, group in enumerate(groups):
        if i not in met:
            hidden = any(fnmatchcase(name, group.match) for name in names)
            # What all parameters of a part are called by is near where a pattern is misspelled.
            parts = {f"{name.partition('.')[0]}.*" for name in names}
            near = nearest(group.match, parts if "*" in group.match else names)
            why = "earlier groups have all of them" if hidden else near
            raise ParibusError(f"{KEY}.groups: no parameter is left for '{group.match}': {why}")


def _factor_and_decay(spec: OptimizerSpec, number: int) -> tuple[float, float]:
    """Return the learning rate of a group relative to the study's, and its weight decay."""
    if number < 0:
        return 1.0, spec.weight_decay
    group, factor = spec.groups[number], 1.0
    if group.learning_rate is not None:
        factor = group.learning_rate / spec.learning_rate
    elif group.learning_rate_factor is not None:
        factor = group.learning_rate_factor
    return factor, spec.weight_decay if group.weight_decay is None else group.weight_decay


class StackedOptimizer:
    """Updates rows of weights in place, group by group, and keeps what optimizers keep.

    Args:
        groups: of all parameters, in the order in which they lie in a row.
        weights: the rows.
        scheduled: what `update` is given of schedules, by name.

    Attributes:
        slots: {name: {parameter name: [R, ...]}}.
        moves_weights: whether the weights that are evaluated are others than those trained.
    """

    def __init__(
        self, groups: Sequence[ParameterGroup], weights: Rows, scheduled: Sequence[str] = ()
    ) -> None:
        self._scheduled = scheduled
        self.slots = {
            slot: Rows.zeros(_slot_shapes(slot, groups, weights), weights.flat)
            for slot in dict.fromkeys(slot for group in groups for slot in group.optimizer.slots)
        }
        self._parts = [_Part(group, weights, self.slots) for group in groups]
        self._weights = weights
        self.moves_weights = any(group.optimizer.evaluated for group in groups)
        self._has_afterwards = any(group.optimizer.afterwards for group in groups)

    @torch.no_grad()
    def update(
        self, grads_RN: Tensor, rates_R1: Tensor, t: Tensor, scheduled_SR1: Iterable[Tensor] = ()
    ) -> None:
        """Step in place. A replica whose learning rate is 0 keeps its weights.

        grads_RN: [R, N], which is written to. t: [], or [R, 1] of each replica.
        """
        scheduled = dict(zip(self._scheduled, scheduled_SR1, strict=True))
        for part in self._parts:
            part.update(grads_RN, rates_R1, scheduled, t)

    @torch.no_grad()
    def afterwards(self, t: int) -> None:
        """Do what optimizers do on the host after step t."""
        if self._has_afterwards:
            for part in self._parts:
                part.afterwards(t)

    @torch.no_grad()
    def evaluated(self) -> Rows:
        """Return the weights that are evaluated: those that are trained, or what the optimizers
        make of them."""
        if not self.moves_weights:
            return self._weights
        found = self._weights.clone()
        for part in self._parts:
            part.evaluate(found.flat)
        return found


class _Run(NamedTuple):
    """Parameters that an optimizer is given at once: where they lie in a row, as [R, *shape]; and
    whether it decays them itself."""

    place: slice
    shape: tuple[int, ...]
    weights: Tensor
    slots: Mapping[str, Tensor]
    decays: bool


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
            one = tuple(weights[names[0]].shape[1:])
            is_whole = group.optimizer.whole
            shape = (len(names), *one) if is_whole else (-1,)
            place = weights.place(names)
            kept = {}
            for slot, rows in own.items():
                of = group.optimizer.slot_shape(slot, one, group.options)
                if of is not None:
                    as_seen = (len(names), *of) if is_whole else (-1,)
                    kept[slot] = _seen(rows.flat[:, rows.place(names)], as_seen)
            seen = _seen(weights.flat[:, place], shape)
            decays = group.optimizer.decay == "own" and names[0] in group.names[: group.n_decayed]
            self._runs.append(_Run(place, shape, seen, MappingProxyType(kept), decays))

    def afterwards(self, t: int) -> None:
        optimizer = self._group.optimizer
        if optimizer.afterwards:
            with blamed(f"optimizer '{optimizer.name}': its afterwards failed at step {t}"):
                for run in self._runs:
                    optimizer.afterwards(run.slots, self._group.options, t)

    def evaluate(self, flat_RN: Tensor) -> None:
        """Write the weights that are evaluated to their place in rows."""
        optimizer, options = self._group.optimizer, self._group.options
        if optimizer.evaluated:
            with blamed(f"optimizer '{optimizer.name}': its evaluated failed"):
                for run in self._runs:
                    found = optimizer.evaluated(run.weights, run.slots, options)
                    flat_RN[:, run.place] = found.reshape(len(found), -1)

    def update(
        self, grads_RN: Tensor, rates_R1: Tensor, scheduled: Mapping[str, Tensor], t: Tensor
    ) -> None:
        group, decays_R1 = self._group, self._decays_R1
        if group.schedule:
            rates_R1 = scheduled[group.schedule]
        elif self._factors_R1 is not None:
            rates_R1 = rates_R1 * self._factors_R1
        if DECAY in scheduled:
            decays_R1 = decays_R1 * scheduled[DECAY]
        if group.n_decayed and group.optimizer.decay == "coupled":
            grads_RN[:, self._decayed].addcmul_(self._decayed_weights, decays_R1)
        elif group.n_decayed and group.optimizer.decay == "decoupled":
            self._decayed_weights.mul_(1 - rates_R1 * decays_R1)
        momentum = getattr(group.options, group.optimizer.momentum, 0.0)
        if MOMENTUM in scheduled:
            momentum = scheduled[MOMENTUM] * momentum
        for run in self._runs:
            grads = _seen(grads_RN[:, run.place], run.shape)
            rates, count = (_along(one, run.shape) for one in (rates_R1, t))
            along = _along(momentum, run.shape) if isinstance(momentum, Tensor) else momentum
            decay = _along(decays_R1, run.shape) if run.decays else 0.0
            about = (rates, count, group.options, along, decay)
            step(group, Update(run.weights, grads, run.slots, *about))


def _together(group: ParameterGroup, weights: Rows) -> list[tuple[str, ...]]:
    """Return all of a group at once; or those apart that are not decayed, where decay is the
    optimizer's own; or for one of whole parameters, neighbours of one shape."""
    decays = dict.fromkeys(group.names[: group.n_decayed], True)

    def alike(name: str) -> tuple[object, ...]:
        optimizer = group.optimizer
        return (
            decays.get(name, False) if optimizer.decay == "own" else None,
            weights[name].shape if optimizer.whole else None,
        )

    return [tuple(names) for _, names in groupby(group.names, key=alike)]


def _seen(x_RN: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return [R, N] as an optimizer is given it: as it is, or whole parameters."""
    return x_RN if len(shape) == 1 else x_RN.view(-1, *shape)


def _along(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return [R, 1] as it goes with what `_seen` gives; [] as it is."""
    return x if len(shape) == 1 or x.ndim == 0 else x.view(*x.shape, *(1,) * (len(shape) - 1))


def step(group: ParameterGroup, update: Update) -> None:
    """Make a step. Raises ParibusError where it fails; what a GPU's recording refuses goes on."""
    name = group.optimizer.name
    what = f"optimizer '{name}' failed on weights of shape {tuple(update.weights.shape)}"
    but = (RuntimeError,) if update.weights.is_cuda else ()
    with blamed(what, "it is called with one paribus.extend.Update", but=but):
        given = group.optimizer.step(update)
    if given is not None:
        raise ParibusError(
            f"optimizer '{name}' gave {type(given).__name__}; it writes to update.weights and "
            "update.slots in place, and gives nothing"
        )


def _slot_shapes(
    slot: str, groups: Sequence[ParameterGroup], weights: Rows
) -> dict[str, torch.Size]:
    """Return the shape of what is kept in a slot, by the name of its parameter."""
    found = {}
    for group in groups:
        for name in group.names if slot in group.optimizer.slots else ():
            shape = tuple(weights[name].shape[1:])
            of = group.optimizer.slot_shape(slot, shape, group.options)
            if of is not None:
                found[name] = torch.Size(of)
    return found
