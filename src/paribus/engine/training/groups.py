"""Parameter groups: the optimizer, options, learning rate and weight decay of every parameter.

A study sets one main optimizer. `training.optimizer.groups` may set another optimizer, learning
rate or weight decay for parameters that match a glob pattern. AdamW trains the parameters that an
optimizer does not support, such as biases with Muon.
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
from paribus.engine.setting import Setting, Training
from paribus.engine.setting.setting import Optimizer as OptimizerSpec
from paribus.engine.training.optimizers import Optimizer, find_optimizer
from paribus.errors import ParibusError
from paribus.study.choices import Options, read_options

KEY = "training.optimizer"
REST = "adamw"  # trains the parameters that other optimizers do not support
MAIN = -1  # group index of the parameters that no pattern matches


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are updated by one optimizer with the same options.

    Attributes:
        optimizer: Optimizer of the group.
        options: Options of the optimizer.
        names: Parameter names. Those with weight decay come first, and the same parameter in
            different blocks is adjacent.
        decayed: Names of the parameters with weight decay.
        factors: Multiple of the study's learning rate for each replica.
        decays: Weight decay of each replica.
    """

    optimizer: Optimizer
    options: Options
    names: tuple[str, ...]
    decayed: tuple[str, ...]
    factors: tuple[float, ...]
    decays: tuple[float, ...]


def is_decayed(use: ParameterUse, decay: str) -> bool:
    """Return whether weight decay applies to a parameter.

    Args:
        use: role of the parameter in the model.
        decay: value of `training.optimizer.decay`.
    """
    return use.decays and (decay == "matrices" or not use.table)


def parameter_groups(
    settings: Sequence[Setting], model: nn.Module, folder: Path | None
) -> list[ParameterGroup]:
    """Return the parameter groups of `model`.

    Args:
        settings: one setting per replica.
        model: model to train.
        folder: folder against which import paths of custom optimizers are resolved.

    Raises ParibusError for an unknown optimizer or option, a pattern that matches no parameter, or
    a group whose optimizer does not support its parameters.
    """
    spec, uses = settings[0].training.optimizer, parameter_uses(model)
    named = _named_optimizers(spec, folder)
    members: dict[tuple[int, bool], list[str]] = {}
    for name, parameter in sorted(model.named_parameters(), key=lambda item: role(item[0])):
        matching = (i for i, group in enumerate(spec.groups) if fnmatchcase(name, group.match))
        number, shape = next(matching, MAIN), tuple(parameter.shape)
        optimizer = named[number]
        is_left = optimizer.takes is not None and not optimizer.takes(shape, uses[name])
        is_stated = number != MAIN and spec.groups[number].optimizer is not None
        if is_left and is_stated:
            raise ParibusError(
                f"optimizer '{optimizer.name}' does not support '{name}' of shape {shape}, which "
                f"matches '{spec.groups[number].match}' in {KEY}.groups; add a group with another "
                "optimizer for it before this one",
                code="conflict",
            )
        members.setdefault((number, is_left), []).append(name)
    for i, group in enumerate(spec.groups):
        if not any(number == i for number, _ in members):
            raise ParibusError(
                f"the pattern '{group.match}' in {KEY}.groups matches no parameter that an earlier "
                "group has not matched; correct the pattern, or remove the group",
                code="unknown",
            )

    groups = []
    # In the order of the study; parameters that AdamW trains instead come after the others.
    for (number, is_left), names in sorted(members.items()):
        optimizer = find_optimizer(REST, KEY, None) if is_left else named[number]
        decayed = [name for name in names if is_decayed(uses[name], spec.decay)]
        rates = [_factor_and_decay(each.training.optimizer, number) for each in settings]
        groups.append(
            ParameterGroup(
                optimizer=optimizer,
                options=_options(spec, named, number, optimizer),
                names=(*decayed, *(name for name in names if name not in decayed)),
                decayed=tuple(decayed),
                factors=tuple(factor for factor, _ in rates),
                decays=tuple(decay for _, decay in rates),
            )
        )
    return groups


def _factor_and_decay(spec: OptimizerSpec, number: int) -> tuple[float, float]:
    """Return a group's multiple of the study's learning rate, and its weight decay.

    Args:
        number: index of the group in `spec.groups`, or MAIN.
    """
    if number == MAIN:
        return 1.0, spec.weight_decay
    group = spec.groups[number]
    decay = spec.weight_decay if group.weight_decay is None else group.weight_decay
    return group.factor(spec), decay


def optimizer_slots(training: Training, folder: Path | None) -> tuple[str, ...]:
    """Return the names of all state tensors that the optimizers in `training` may use.

    Raises ParibusError for an unknown optimizer.
    """
    optimizers = list(_named_optimizers(training.optimizer, folder).values())
    if any(optimizer.takes for optimizer in optimizers):
        optimizers.append(find_optimizer(REST, KEY, None))
    return tuple(dict.fromkeys(slot for optimizer in optimizers for slot in optimizer.slots))


def _named_optimizers(spec: OptimizerSpec, folder: Path | None) -> dict[int, Optimizer]:
    """Return the optimizers specified by the study, keyed by group index."""
    named = {MAIN: find_optimizer(spec.name, f"{KEY}.name", folder)}
    for i, group in enumerate(spec.groups):
        key = f"{KEY}.groups[{i}].optimizer"
        named[i] = find_optimizer(group.optimizer or spec.name, key, folder)
    for number, optimizer in named.items():
        _options(spec, named, number, optimizer)
    return named


def _options(
    spec: OptimizerSpec, named: dict[int, Optimizer], number: int, optimizer: Optimizer
) -> Options:
    """Validate and return the options of a group's optimizer, or of AdamW as its fallback.

    Raises ParibusError for an unknown option.
    """
    key = f"{KEY}.options"
    options: dict[str, Any] = {}
    if optimizer.name == REST:
        options = {"betas": spec.betas, "eps": spec.eps}
    if optimizer is named[MAIN]:
        options |= spec.options
    group = None if number == MAIN else spec.groups[number]
    if group and group.options and optimizer is named[number]:
        key = f"{KEY}.groups[{number}].options"
        options |= group.options
    return read_options(optimizer.options, options, key, optimizer.name)
