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
OF_REST = ("betas", "eps")  # keys of `training.optimizer` that only AdamW uses
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

    Raises ParibusError for an unknown optimizer or option, a key without effect, a pattern that
    matches no parameter, or a group whose optimizer does not support its parameters.
    """
    spec, uses = settings[0].training.optimizer, parameter_uses(model)
    named = _named_optimizers(spec, folder)
    members: dict[tuple[int, bool], list[str]] = {}
    for name, parameter in sorted(model.named_parameters(), key=lambda item: role(item[0])):
        matching = (i for i, group in enumerate(spec.groups) if fnmatchcase(name, group.match))
        number, shape = next(matching, MAIN), tuple(parameter.shape)
        optimizer, _ = named[number]
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
    rest = find_optimizer(REST, KEY, None)
    # In the order of the study; parameters that AdamW trains instead come after the others.
    for (number, is_left), names in sorted(members.items()):
        optimizer, options = (rest, _options(spec, rest, {}, KEY)) if is_left else named[number]
        decayed = [name for name in names if is_decayed(uses[name], spec.decay)]
        rates = [_factor_and_decay(each.training.optimizer, number) for each in settings]
        groups.append(
            ParameterGroup(
                optimizer=optimizer,
                options=options,
                names=(*decayed, *(name for name in names if name not in decayed)),
                decayed=tuple(decayed),
                factors=tuple(factor for factor, _ in rates),
                decays=tuple(decay for _, decay in rates),
            )
        )
    _require_effect(spec, groups)
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
    optimizers = [each for each, _ in _named_optimizers(training.optimizer, folder).values()]
    if any(optimizer.takes for optimizer in optimizers):
        optimizers.append(find_optimizer(REST, KEY, None))
    return tuple(dict.fromkeys(slot for optimizer in optimizers for slot in optimizer.slots))


def _named_optimizers(
    spec: OptimizerSpec, folder: Path | None
) -> dict[int, tuple[Optimizer, Options]]:
    """Return the optimizers specified by the study and their options, keyed by group index."""
    main = find_optimizer(spec.name, f"{KEY}.name", folder)
    named = {MAIN: (main, _options(spec, main, spec.options, KEY))}
    for i, group in enumerate(spec.groups):
        key = f"{KEY}.groups[{i}]"
        optimizer = find_optimizer(group.optimizer or spec.name, f"{key}.optimizer", folder)
        options = spec.options | group.options if optimizer is main else group.options
        named[i] = optimizer, _options(spec, optimizer, options, key if group.options else KEY)
    return named


def _options(
    spec: OptimizerSpec, optimizer: Optimizer, options: dict[str, Any], key: str
) -> Options:
    """Validate an optimizer's options; AdamW's defaults are keys of `training.optimizer`."""
    defaults = {name: getattr(spec, name) for name in OF_REST if optimizer.name == REST}
    return read_options(optimizer.options, defaults | options, f"{key}.options", optimizer.name)


def _require_effect(spec: OptimizerSpec, groups: Sequence[ParameterGroup]) -> None:
    """Raise ParibusError if `betas` or `eps` is set, but AdamW trains no parameter with it."""
    options = [group.options for group in groups if group.optimizer.name == REST]
    for name in OF_REST:
        value, default = getattr(spec, name), OptimizerSpec.model_fields[name].default
        if value != default and all(getattr(each, name) != value for each in options):
            raise ParibusError(
                f"{KEY}.{name} = {value} has no effect, because AdamW trains no parameter with it; "
                f"remove it (in an arm, set the default {default}), or set {KEY}.options",
                code="conflict",
            )
