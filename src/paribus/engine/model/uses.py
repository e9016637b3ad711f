"""Uses of parameters, declared by the parts of a model instead of derived from names.

A built-in or custom part may declare two class attributes, each a tuple of layer or parameter names
within the part, such as "out" or "experts.down":

    residual_projections    layers whose output is added to the residual stream; their initial
                            matrices have a smaller std (see `Init`)
    undecayed               parameters or layers without weight decay
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
    """Use of a parameter in the model.

    Attributes:
        residual: Whether it is a projection into the residual stream.
        table: Whether it is a lookup table, as in embeddings.
        head: Whether it belongs to the head.
        decays: Whether weight decay may apply: it is a matrix, not a bias, and not `undecayed`.
    """

    residual: bool
    table: bool
    head: bool
    decays: bool


def parameter_uses(model: nn.Module) -> dict[str, ParameterUse]:
    """Return the use of every parameter in `model`, keyed by name.

    Raises ParibusError if a part declares a name that does not exist in it.
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
    """Return the full names of all parameters that parts declare in the class attribute."""
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
                    f"{type(part).__name__}.{attribute} names '{name}', which does not exist in "
                    f"the part: {nearest(name, modules | parameters)}",
                    code="own_code",
                )
            declared |= {f"{path}.{match}" if path else match for match in matches}
    return declared
