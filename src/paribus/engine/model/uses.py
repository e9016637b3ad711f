"""Uses of parameters, declared by the parts of a model rather than derived from names.

A part, shipped or custom, may declare two attributes, tuples of names within it such as "out" or
"experts.down":

    residual_projections    layers whose output is added to the residual stream; their matrices
                            start with a smaller std (`Init`)
    undecayed               parameters or layers without weight decay
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from paribus.errors import ParibusError, nearest

RESIDUAL = "residual_projections"
UNDECAYED = "undecayed"
PLACES = ("embedding", "attention", "nowhere")  # of positions


@dataclass(frozen=True)
class ParameterUse:
    """Use of a parameter."""

    residual: bool  # true for a projection into the residual stream
    table: bool  # true if its rows are looked up, as in embeddings
    head: bool  # true if it belongs to the head
    decays: bool  # true if weight decay may apply: a matrix, no bias, not declared `undecayed`


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
