"""Uses of parameters, as the parts of a model declare them; names of parameters do not matter.

A part, shipped or custom, may declare two attributes, tuples of names within it such as "out" or
"experts.down":

    residual_projections    layers whose output is added to the residual stream; their matrices
                            start with a smaller std (`Init`)
    undecayed               parameters or layers without weight decay
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from paribus.engine.setting import Setting
from paribus.errors import ParibusError, nearest

RESIDUAL = "residual_projections"
UNDECAYED = "undecayed"
PLACES = ("embedding", "attention", "nowhere")  # of positions


@dataclass(frozen=True)
class ParameterUse:
    """Use of a parameter.

    Attributes:
        residual: True for a projection into the residual stream.
        table: True if its rows are looked up, as in embeddings.
        head: True if it belongs to the head.
        decays: True if weight decay may apply: a matrix, no bias, not declared `undecayed`.
    """

    residual: bool
    table: bool
    head: bool
    decays: bool


def parameter_uses(model: nn.Module) -> dict[str, ParameterUse]:
    """Return the use of every parameter of `model`, by name.

    Raises ParibusError if a part declares a name that it does not have.
    """
    residual, undecayed = _declared(model, RESIDUAL), _declared(model, UNDECAYED)
    tables = {
        f"{path}.weight"
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    return {
        name: ParameterUse(
            residual=name in residual,
            table=name in tables,
            head=name.startswith("head."),
            decays=parameter.ndim >= 2 and not name.endswith("bias") and name not in undecayed,
        )
        for name, parameter in model.named_parameters()
    }


def _declared(model: nn.Module, attribute: str) -> set[str]:
    """Return the full names of the parameters that parts declare in an attribute."""
    declared: set[str] = set()
    for path, part in model.named_modules():
        names = getattr(part, attribute, ())
        if not names:
            continue
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise ParibusError(
                f"{type(part).__name__}.{attribute} = {names!r} must be a tuple of names, such as "
                "('out',)",
                code="own_code",
            )
        parameters, modules = dict(part.named_parameters()), dict(part.named_modules())
        for name in names:
            matches = [n for n in parameters if n == name or n.startswith(f"{name}.")]
            if not matches and name not in modules:  # a module may have no parameters
                raise ParibusError(
                    f"{type(part).__name__}.{attribute} names '{name}', which it does not have: "
                    f"{nearest(name, modules | parameters)}",
                    code="own_code",
                )
            declared |= {f"{path}.{match}" if path else match for match in matches}
    return declared


def undeclared_projections(model: nn.Module, setting: Setting) -> list[str]:
    """Return a warning for each custom part that may write to the residual stream undeclared.

    Such a part declares no `residual_projections` and ends with an `nn.Linear` of d_model outputs.
    The first block stands for all.
    """
    if not setting.model.init.scale_residual:
        return []
    warnings = []
    for site, path in setting.model.modules.named.items():
        part = getattr(model.get_submodule("blocks.0"), site, None)
        if (
            not isinstance(part, nn.Module)
            or hasattr(part, "init_parameter")
            or any(hasattr(module, RESIDUAL) for module in part.modules())
        ):
            continue
        projections = [
            name
            for name, module in part.named_modules()
            if isinstance(module, nn.Linear) and module.out_features == setting.model.d_model
        ]
        if projections:
            warnings.append(
                f"model.modules.{site} = '{path}': its last projection '{projections[-1]}' starts "
                f"with std {setting.model.init.std:g}, unscaled; declare {RESIDUAL} = "
                f"('{projections[-1]}',) in its class, or {RESIDUAL} = () if it does not write to "
                "the residual stream"
            )
    return warnings
