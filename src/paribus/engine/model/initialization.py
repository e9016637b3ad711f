"""Initial weights by parameter name: every tensor from a stream of its own.

The stream is keyed by (seed, parameter name), so a parameter that two arms share starts bit-equal
in both, whatever else an arm adds, removes or draws. GPT-2's initialisation (Radford et al. 2019):
normal matrices, projections into the residual stream scaled by 1 / sqrt(2 n_layer), zero biases,
unit gains. Which projections those are, the parts declare (`uses`).
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from paribus.engine.model.uses import ParameterUse, parameter_uses
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed
from paribus.rng import stream

CONSTRUCTED = "as constructed"
ONES = "ones"
LARGE = 2**26  # numbers: from here on parameters are drawn by several threads


@dataclass(frozen=True)
class InitialRule:
    """Rule of a parameter's value at step 0; `std` is 0 for a constant, None where unknown."""

    text: str
    std: float | None
    drawn: bool = False


@dataclass(frozen=True)
class InitialParameter:
    """A parameter's value at step 0, the rule that gave it, and the digest of its bytes.

    `std` is that of the distribution it was drawn from: 0 for a constant, None where its module or
    its constructor gave the value.
    """

    value: np.ndarray
    rule: str
    std: float | None = None

    @property
    def record(self) -> dict[str, object]:
        """Shape, rule and SHA-256 of the little-endian float32 bytes, as initial.json has them; and
        of what a module was asked to draw, how many distinct values it gave."""
        content = np.ascontiguousarray(self.value, dtype="<f4")
        record = {
            "shape": list(self.value.shape),
            "rule": self.rule,
            "sha256": hashlib.sha256(content.data).hexdigest(),
        }
        if self.std is None and self.rule != CONSTRUCTED:
            record["distinct"] = len(np.unique(self.value))
        return record


def initial_parameters(
    model: nn.Module,
    setting: Setting,
    seed: int,
    only: Collection[str] | None = None,
    uses: Mapping[str, ParameterUse] | None = None,
) -> dict[str, InitialParameter]:
    """Return the initial value of every parameter of `model`, or of `only` these, float32, by name.

    `uses` is what `parameter_uses` gives, where it was asked already: of many seeds of one model.
    """
    drawing, uses = _drawing(model), parameter_uses(model) if uses is None else uses
    wanted = [
        (name, parameter)
        for name, parameter in model.named_parameters()
        if only is None or name in only
    ]

    def initial(one: tuple[str, Tensor]) -> InitialParameter:
        name, parameter = one
        return _initial(name, parameter, uses[name], drawing, setting, seed)

    names = [name for name, _ in wanted]
    if drawing or sum(parameter.numel() for _, parameter in wanted) < LARGE:
        return dict(zip(names, map(initial, wanted), strict=True))
    # A billion numbers take one core a minute; each parameter has a stream of its own.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(initial, wanted), strict=True))


def initial_rules(model: nn.Module, setting: Setting) -> dict[str, InitialRule]:
    """Return the rule of every parameter of `model`, by name; nothing large is drawn.

    Only modules with an `init_parameter` are asked for a value; else `model` may be on "meta".
    """
    drawing, uses = _drawing(model), parameter_uses(model)
    rules = {}
    for name, parameter in model.named_parameters():
        if _own_initializer(drawing, name) is not None:
            own = _initial(name, parameter, uses[name], drawing, setting, seed=0)
            rules[name] = InitialRule(own.rule, own.std)
        else:
            rules[name] = _rule(name, tuple(parameter.shape), uses[name], setting)
    return rules


def require_initializers(first: nn.Module, second: nn.Module, setting: Setting) -> None:
    """Raise ParibusError where a parameter keeps a value that its constructor drew at random.

    `first` and `second` are the same model, built under two seeds: such a value would depend on
    what other modules had drawn before, and be no function of (seed, name).
    """
    other = initial_parameters(second, setting, seed=0)
    for name, parameter in initial_parameters(first, setting, seed=0).items():
        if parameter.rule == CONSTRUCTED and (parameter.value != other[name].value).any():
            raise ParibusError(
                f"parameter '{name}' of an own module starts at random; give its module a method "
                "init_parameter(self, name, shape, rng) that draws it"
            )


def _initial(
    name: str,
    parameter: Tensor,
    use: ParameterUse,
    drawing: Mapping[str, nn.Module],
    setting: Setting,
    seed: int,
) -> InitialParameter:
    """`drawing`: by path, modules that draw parameters of theirs themselves."""
    shape = tuple(parameter.shape)
    salt = setting.model.init.salt
    salted = f" salt {salt}" if salt else ""
    rng = stream(seed, "init", *([salt] if salt else []), name)
    own = _own_initializer(drawing, name)
    if own is not None:
        owner, local_name = own
        by = f"{type(owner).__name__}.init_parameter"
        with blamed(f"{by}(name, shape, rng) failed for '{name}'"):
            given = owner.init_parameter(local_name, shape, rng)  # type: ignore[operator]
            value = None if given is None else np.asarray(given, dtype=np.float32)
        if value is not None:
            return InitialParameter(_checked(value, shape, name), f"{by}{salted}")
    rule = _rule(name, shape, use, setting)
    if rule.text == CONSTRUCTED:
        value = parameter.detach().cpu().numpy().astype(np.float32)
    elif rule.drawn:
        value = rng.standard_normal(shape, dtype=np.float32) * np.float32(rule.std)
    else:
        value = np.full(shape, rule.text == ONES, np.float32)
    return InitialParameter(value, f"{rule.text}{salted if rule.drawn else ''}", rule.std)


def _rule(name: str, shape: tuple[int, ...], use: ParameterUse, setting: Setting) -> InitialRule:
    """Return how a parameter starts that its module does not draw itself."""
    std = _normal_std(name, shape, use, setting)
    if std is not None:
        return InitialRule(f"normal(std={std:.6g})", std, drawn=True)
    if name.endswith("bias"):
        return InitialRule("zeros", 0.0)
    if name.endswith("weight"):
        return InitialRule(ONES, 0.0)
    # A parameter of the user's own with a name of its own: its constructor knows best.
    return InitialRule(CONSTRUCTED, None)


def _normal_std(
    name: str, shape: tuple[int, ...], use: ParameterUse, setting: Setting
) -> float | None:
    """Return the std of a normally drawn parameter; None for one that is not drawn."""
    init = setting.model.init
    if name == "embedding.tokens.weight":
        return init.token_std
    if name == "embedding.positions.weight":
        return init.position_std
    if len(shape) < 2 or not name.endswith("weight"):
        return None
    if init.scale_residual and use.residual:
        return init.std / math.sqrt(2 * setting.model.n_layer)
    return init.std


def _drawing(model: nn.Module) -> dict[str, nn.Module]:
    """By path, the modules that draw parameters of theirs themselves."""
    return {p: module for p, module in model.named_modules() if hasattr(module, "init_parameter")}


def _own_initializer(drawing: Mapping[str, nn.Module], name: str) -> tuple[nn.Module, str] | None:
    """Return the innermost module that draws parameter `name` itself, and its name there."""
    path = name.split(".")
    for depth in range(len(path) - 1, 0, -1):
        owner = drawing.get(".".join(path[:depth]))
        if owner is not None:
            return owner, ".".join(path[depth:])
    return None


def _checked(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    if array.shape != shape:
        raise ParibusError(f"init_parameter gave '{name}' the shape {array.shape}; it is {shape}")
    if not np.isfinite(array).all():
        raise ParibusError(f"init_parameter gave '{name}' numbers that are not finite")
    return array
