"""Roles of parameters, declared by the parts of a model instead of inferred from names.

A built-in or custom part may declare two class attributes, each a tuple of layer or parameter names
within the part, such as "out" or "experts.down":

    residual_projections    layers whose output is added to the residual stream; their initial
                            matrices have a smaller std (see `Init`)
    undecayed               parameters or layers excluded from weight decay
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from paribus.errors import ParibusError, nearest

RESIDUAL = "residual_projections"
UNDECAYED = "undecayed"
PLACES = ("embedding", "attention", "nowhere")  # of position encodings


@dataclass(frozen=True)
class ParameterUse:
    """Role of a parameter in the model.

    Attributes:
        residual: Whether the parameter projects into the residual stream.
        table: Whether the parameter is the weight of an `nn.Embedding`.
        head: Whether the parameter belongs to the head.
        decays: Whether weight decay may apply to the parameter. Biases, vectors and `undecayed`
            parameters are excluded.
    """

    residual: bool
    table: bool
    head: bool
    decays: bool


def parameter_uses(model: nn.Module) -> dict[str, ParameterUse]:
    """Return the role of every parameter, keyed by parameter name.

    Raises ParibusError if a part declares the name of a nonexistent layer or parameter.
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
    """Return the qualified names of the parameters that parts list in a class attribute."""
    declared: set[str] = set()
    for path, part in model.named_modules():
        names = getattr(part, attribute, ())
        if not names:
            continue
        parameters, modules = dict(part.named_parameters()), dict(part.named_modules())
        for name in names:
            matches = [n for n in parameters if n == name or n.startswith(f"{name}.")]
            if not matches and name not in modules:  # a module may have no parameters
                raise ParibusError(
                    f"{type(part).__name__}.{attribute} lists '{name}', but the part has no such "
                    f"layer or parameter; {nearest(name, modules | parameters)}",
                    code="own_code",
                )
            declared |= {f"{path}.{match}" if path else match for match in matches}
    return declared
