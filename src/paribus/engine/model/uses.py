"""Uses of parameters, as the parts of a model declare them: never by the parameter's name.

A part, built in or the user's own, is an `nn.Module` that may have two attributes:

    residual_projections = ("out",)    its layers whose output is added to the residual stream;
                                       their matrices start with the smaller std (`Init`)
    undecayed = ("scale",)             its parameters or layers that weight decay must not touch

Both are names within the part, such as "out" or "experts.down". An empty tuple says that there are
none.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from paribus.engine.setting import Setting
from paribus.errors import ParibusError, nearest

RESIDUAL = "residual_projections"
UNDECAYED = "undecayed"
HEAD = "head."  # the site, whatever stands there
PLACES = ("embedding", "attention", "nowhere")  # where positions stand


@dataclass(frozen=True)
class ParameterUse:
    """Use of a parameter.

    Attributes:
        residual: whether it is a projection into the residual stream.
        table: whether rows of it are looked up, as embeddings are.
        head: whether it belongs to the head, and a matrix gives logits.
        decays: whether weight decay may touch it: a matrix, no bias, and not declared `undecayed`.
    """

    residual: bool
    table: bool
    head: bool
    decays: bool


def parameter_uses(model: nn.Module) -> dict[str, ParameterUse]:
    """Return the use of every parameter of `model`, by name.

    Raises ParibusError where a part declares something that it does not have.
    """
    residual = _declared(model, RESIDUAL)
    undecayed = _declared(model, UNDECAYED)
    tables = {
        f"{path}.weight"
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    return {
        name: ParameterUse(
            residual=name in residual,
            table=name in tables,
            head=name.startswith(HEAD),
            decays=parameter.ndim >= 2 and not name.endswith("bias") and name not in undecayed,
        )
        for name, parameter in model.named_parameters()
    }


def undeclared_projections(model: nn.Module, setting: Setting) -> list[str]:
    """Return a line for each own part that seems to write to the residual stream unsaid.

    Found by structure: its last `nn.Linear` with d_model outputs, where the part declares no
    `residual_projections` at all. Blocks have the same parts, so the first one speaks for all.
    """
    if not setting.model.init.scale_residual:
        return []
    lines = []
    for site, path in setting.model.modules.named.items():
        part = getattr(model.get_submodule("blocks.0"), site, None)
        if not isinstance(part, nn.Module) or any(hasattr(m, RESIDUAL) for m in part.modules()):
            continue
        widths = {
            name: module.out_features
            for name, module in part.named_modules()
            if isinstance(module, nn.Linear)
        }
        last = [name for name, width in widths.items() if width == setting.model.d_model][-1:]
        if last and not hasattr(part, "init_parameter"):
            lines.append(
                f"model.modules.{site} = '{path}': its last projection, '{last[0]}', is not "
                f"declared to write to the residual stream and starts with std "
                f"{setting.model.init.std:g}, unscaled; say {RESIDUAL} = ('{last[0]}',) in the "
                f"class, or {RESIDUAL} = () where none does"
            )
    return lines


def _declared(model: nn.Module, attribute: str) -> set[str]:
    """Return the full names of the parameters that parts declare by `attribute`."""
    found: set[str] = set()
    for path, part in model.named_modules():
        names = getattr(part, attribute, ())
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise ParibusError(
                f"{type(part).__name__}.{attribute} = {names!r} must be a tuple of names, such as "
                "('out',)"
            )
        own = {name for name, _ in part.named_parameters()} if names else set()
        for wanted in names:
            hit = {name for name in own if name == wanted or name.startswith(f"{wanted}.")}
            # A module of that name may have no parameters.
            if not hit and wanted not in dict(part.named_modules()):
                layers = dict(part.named_children()) | dict(part.named_parameters(recurse=False))
                raise ParibusError(
                    f"{type(part).__name__}.{attribute} names '{wanted}', which it does not have: "
                    f"{nearest(wanted, layers)}"
                )
            found |= {f"{path}.{name}" if path else name for name in hit}
    return found


def unused_positions(model: nn.Module, setting: Setting) -> list[str]:
    """Return a line where the positions that a study names stand in no part of the model.

    An attention or embedding of the user's own has them only where it builds them.
    """
    named, kind = setting.model.modules.named, setting.model.positions.kind
    others = [site for site in ("attention", "embedding") if site in named]
    is_chosen = "positions" in named or (kind == "rotary" and "attention" in named)
    if (
        not is_chosen
        or not others
        or any(getattr(m, "stands", "") in PLACES for m in model.modules())
    ):
        return []
    where = "model.modules.positions" if "positions" in named else "model.positions.kind"
    what = named.get("positions", kind)
    own = ", ".join(f"model.modules.{site} = '{named[site]}'" for site in others)
    return [
        f"{where} = '{what}' has no effect: {own} does not build it (see "
        "paribus.extend.study_positions)"
    ]
