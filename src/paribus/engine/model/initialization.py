"""Initial weights, with a separate random stream for every parameter.

Streams are keyed by (seed, parameter name), so a parameter that two arms share has the same initial
value in both, whatever else an arm adds or removes. By default, as in GPT-2 (Radford et al. 2019),
matrices are normal, projections into the residual stream are scaled by 1 / sqrt(2 n_layer), biases
are zero, and gains are one. Parts declare their residual projections (see `uses`).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from paribus.engine.model.uses import ParameterUse, parameter_uses
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, blamed
from paribus.rng import stream

CONSTRUCTED = "as constructed"


@dataclass(frozen=True)
class InitialParameter:
    """Initial value (float32) of a parameter, and the rule that generated it."""

    value: np.ndarray
    rule: str

    @property
    def record(self) -> dict[str, object]:
        """Entry in initial.json: shape, rule and SHA-256 digest of the little-endian values."""
        content = np.ascontiguousarray(self.value, dtype="<f4")
        return {
            "shape": list(self.value.shape),
            "rule": self.rule,
            "sha256": hashlib.sha256(content.data).hexdigest(),
        }


def initial_parameters(
    model: nn.Module, setting: Setting, seed: int
) -> dict[str, InitialParameter]:
    """Return the initial values of all parameters for a seed, keyed by parameter name.

    `model` must be newly built, because some custom parameters keep their constructed values.
    """
    uses = parameter_uses(model)
    return {
        name: _initial(model, name, parameter, uses[name], setting, seed)
        for name, parameter in model.named_parameters()
    }


def require_initializers(first: nn.Module, second: nn.Module, setting: Setting) -> None:
    """Raise ParibusError if a parameter keeps a random value from its constructor.

    Such a value depends on the random numbers that other modules consumed before.

    Args:
        first, second: the same model, built with different constructor seeds.
        setting: the model's setting.
    """
    again = initial_parameters(second, setting, seed=0)
    for name, parameter in initial_parameters(first, setting, seed=0).items():
        if parameter.rule == CONSTRUCTED and (parameter.value != again[name].value).any():
            raise ParibusError(
                f"parameter '{name}' of a custom module keeps a random value from its constructor; "
                "add a method init_parameter(self, name, shape, rng) that returns the initial "
                "value",
                code="own_code",
            )


def _initial(
    model: nn.Module,
    name: str,
    parameter: Tensor,
    use: ParameterUse,
    setting: Setting,
    seed: int,
) -> InitialParameter:
    shape, salt = tuple(parameter.shape), setting.model.init.salt
    salted = f" salt {salt}" if salt else ""
    rng = stream(seed, "init", *([salt] if salt else []), name)
    if owner := _drawing_owner(model, name):
        module, local_name = owner
        label = f"{type(module).__name__}.init_parameter"
        with blamed(f"{label}(name, shape, rng) failed for '{name}'"):
            value = module.init_parameter(local_name, shape, rng)  # type: ignore[operator]
            value = None if value is None else np.asarray(value, dtype=np.float32)
        if value is not None:
            if value.shape != shape or not np.isfinite(value).all():
                raise ParibusError(
                    f"{label} must return a finite array of shape {shape} for '{name}'",
                    code="own_code",
                )
            return InitialParameter(value, f"{label}{salted}")
    std = _normal_std(name, shape, use, setting)
    if std is not None:
        value = rng.standard_normal(shape, dtype=np.float32) * np.float32(std)
        return InitialParameter(value, f"normal(std={std:.6g}){salted}")
    if name.endswith("bias"):
        return InitialParameter(np.zeros(shape, np.float32), "zeros")
    if name.endswith("weight"):
        return InitialParameter(np.ones(shape, np.float32), "ones")
    # A custom parameter with another name.
    return InitialParameter(parameter.detach().cpu().numpy().astype(np.float32), CONSTRUCTED)


def _normal_std(
    name: str, shape: tuple[int, ...], use: ParameterUse, setting: Setting
) -> float | None:
    """Return the standard deviation for a normally initialized parameter, otherwise None."""
    init = setting.model.init
    if name == "embedding.tokens.weight":
        return init.token_std
    if name == "embedding.positions.weight":
        return init.position_std
    if len(shape) < 2 or not name.endswith("weight"):
        return None
    is_scaled = init.scale_residual and use.residual
    return init.std / math.sqrt(2 * setting.model.n_layer) if is_scaled else init.std


def _drawing_owner(model: nn.Module, name: str) -> tuple[nn.Module, str] | None:
    """Return a parameter's innermost enclosing module that defines `init_parameter`, or None.

    The second element is the parameter's name within that module.
    """
    path = name.split(".")
    for depth in range(len(path) - 1, 0, -1):
        module = model.get_submodule(".".join(path[:depth]))
        if hasattr(module, "init_parameter"):
            return module, ".".join(path[depth:])
    return None
