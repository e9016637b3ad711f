"""Which optimizer has which parameters, with which options, learning rate and weight decay.

A study names one optimizer, and may give parameters of a pattern another one, or a learning rate or
weight decay of their own (`training.optimizer.groups`). An optimizer that is not for a parameter,
such as Muon for a bias, leaves it to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import nn

from paribus.engine.model import ParameterUse, parameter_uses
from paribus.engine.rows import role
from paribus.engine.training.optimizers import Optimizer, Options, find_optimizer
from paribus.engine.training.optimizers.declare_optimizer import takes_all
from paribus.errors import ParibusError, nearest
from paribus.study import Setting, Training
from paribus.study.choices import read_options
from paribus.study.spec import Group as GroupSpec
from paribus.study.spec import Optimizer as OptimizerSpec

KEY = "training.optimizer"
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
    """

    optimizer: Optimizer
    options: Options
    names: tuple[str, ...]
    n_decayed: int
    factors: tuple[float, ...]
    decays: tuple[float, ...]


def is_decayed(use: ParameterUse, decay: str) -> bool:
    """Whether weight decay touches a parameter of that use, under `training.optimizer.decay`."""
    return use.decays and (decay == "matrices" or not use.table)


def parameter_groups(
    settings: Sequence[Setting], model: nn.Module, folder: Path | None
) -> list[ParameterGroup]:
    """The groups of `model`'s parameters, `settings` being one per replica.

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
        own = [s.training.optimizer for s in settings]
        groups.append(
            ParameterGroup(
                found.named[optimizer],
                _corrected(found.named[optimizer], found.options(at, optimizer)),
                (*decayed, *others),
                len(decayed),
                tuple(_factor(one, at) for one in own),
                tuple(_decay(one, at) for one in own),
            )
        )
    return groups


def optimizer_record(groups: Sequence[ParameterGroup], model: nn.Module) -> list[dict[str, Any]]:
    """What a trial's record says of its optimizer: a table per group, all options written out."""
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
    """Every slot that the optimizers of `training` keep, theirs first that it names.

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
        """By number; before what an optimizer leaves to another comes what it takes."""
        number, name = member[0]
        return number, name != self._of[number].name

    def options(self, number: int, name: str) -> Options:
        """Those of a group's optimizer; of what it leaves to another, that one's own.

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
        """Raise ParibusError where the study sets betas or eps and no optimizer reads them."""
        for key in SHARED:
            default = OptimizerSpec.model_fields[key].default
            if getattr(self._spec, key) != default and not any(
                self._reads_shared(name, key) for name in used
            ):
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
        return name == "adamw" and key in self.named[name].options.model_fields

    def _keep(self, optimizer: Optimizer) -> Optimizer:
        if self.named.setdefault(optimizer.name, optimizer) is not optimizer:
            raise ParibusError(
                f"{KEY}: two optimizers are named '{optimizer.name}'; give yours another name"
            )
        return optimizer


def _takes(optimizer: Optimizer, name: str, shape: tuple[int, ...], use: ParameterUse) -> bool:
    """Whether a parameter is for an optimizer. Raises ParibusError where that cannot be."""
    try:
        takes = optimizer.takes(shape, use)
    except Exception as error:  # it may be the user's code
        raise ParibusError(
            f"optimizer '{optimizer.name}': its takes(shape, use) failed for '{name}', of shape "
            f"{shape}: {type(error).__name__}: {error}"
        ) from error
    if takes and optimizer.matrices and len(shape) != 2:
        raise ParibusError(
            f"optimizer '{optimizer.name}' is given matrices, and takes '{name}', of shape "
            f"{shape}; let its takes(shape, use) leave that to '{optimizer.rest}'"
        )
    return takes


def _corrected(optimizer: Optimizer, options: Options) -> Options:
    """`options`, with which its corrections are of its slots. Raises ParibusError."""
    try:
        unknown = optimizer.corrections(options, 0).keys() - set(optimizer.slots)
    except Exception as error:
        raise ParibusError(
            f"optimizer '{optimizer.name}': its corrections(options, t) failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    if unknown:
        raise ParibusError(
            f"optimizer '{optimizer.name}' corrects '{min(unknown)}', which is none of its slots "
            f"{optimizer.slots}"
        )
    return options


def _require_matches(groups: Sequence[GroupSpec], met: set[int], names: list[str]) -> None:
    for i, group in enumerate(groups):
        if i not in met:
            hidden = any(fnmatchcase(name, group.match) for name in names)
            # What all parameters of a part are called by is near where a pattern is misspelled.
            parts = {f"{name.partition('.')[0]}.*" for name in names}
            near = nearest(group.match, parts if "*" in group.match else names)
            why = "earlier groups have all of them" if hidden else near
            raise ParibusError(f"{KEY}.groups: no parameter is left for '{group.match}': {why}")


def _factor(spec: OptimizerSpec, number: int) -> float:
    """Learning rate of a group relative to the study's."""
    group = spec.groups[number] if number >= 0 else None
    if group and group.learning_rate is not None:
        return group.learning_rate / spec.learning_rate
    if group and group.learning_rate_factor is not None:
        return group.learning_rate_factor
    return 1.0


def _decay(spec: OptimizerSpec, number: int) -> float:
    group = spec.groups[number] if number >= 0 else None
    stated = group.weight_decay if group else None
    return spec.weight_decay if stated is None else stated
