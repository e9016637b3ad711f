"""What a part of the model is: one file each in `norms/`, `positions/` and `mlps/`, found by name;
or the user's own, by import path (`model.modules.<site>`).

Every part is an `nn.Module`. What it may declare, as attributes of its class:

    residual_projections, undecayed    what its parameters are for (`uses`)
    cached = True                      reading a text piece by piece gives what reading it at once
                                       gives; an attention of the user's own is then called with a
                                       `KeyValueCache` as second argument. Without it every new
                                       token costs a pass over the whole text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from paribus.declared import DECLARED, declared
from paribus.engine.model.config import ModelConfig
from paribus.engine.model.custom_modules import module_class
from paribus.errors import ParibusError
from paribus.study.architecture import Model
from paribus.study.choices import no_such

PACKAGE = "paribus.engine.model"
WORDS = {"norms": "norm", "positions": "kind of positions", "mlps": "MLP"}  # by folder


@dataclass(frozen=True)
class Part:
    """What a file declares.

    Attributes:
        name: its value in a study, and the name of its file.
        title: what readers call it, as a noun.
        describe: what it does, to follow "The model has" or stand in brackets.
        source: where it is from.
        module: the class.
    """

    name: str
    title: str
    describe: str
    source: str
    module: type[nn.Module]


M = TypeVar("M", bound=type[nn.Module])


def part(name: str, *, title: str, describe: str, source: str = "") -> Callable[[M], M]:
    """Declare a class as a part that ships; the class stays what it is."""

    def declare(module: M) -> M:
        setattr(module, DECLARED, Part(name, title, describe, source, module))
        return module

    return declare


@cache
def parts(kind: str) -> dict[str, Part]:
    """The parts that ship of a kind: "norms", "positions" or "mlps"; by name."""
    return declared(f"{PACKAGE}.{kind}", Part)


def find_part(kind: str, name: str, key: str) -> Part:
    """The part of that name; `key` is where the study names it. Raises ParibusError."""
    found, package = parts(kind), f"{PACKAGE}.{kind}"
    if name not in found:
        word = WORDS[kind]
        raise no_such(name, found, key, word, package, "your own goes to model.modules")
    return found[name]


def own_part(model: ModelConfig, site: str, folder: Path) -> Any:
    """The user's own module at `site`, built; None where there is none. Raises ParibusError."""
    path = getattr(model.modules, site)
    if path is None:
        return None
    where = f"model.modules.{site} = '{path}'"
    cls = module_class(path, where, folder)
    try:
        built = cls(model)
        built.state_dict()  # which a class that skips nn.Module.__init__ does not have
        return built
    except ParibusError:
        raise
    except Exception as error:
        raise ParibusError(
            f"{where} cannot be built as {cls.__name__}(model), as every part is "
            f"(see paribus.engine.model.ModelConfig): {type(error).__name__}: {error}"
        ) from error


def describe_parts(model: Model) -> dict[str, dict[str, str]]:
    """By site, the name, title and description of what stands there: for records and readers.

    The user's own are described by their import path.
    """
    chosen = {
        "embedding norm": ("norms", model.embedding.norm, "embedding"),
        "positions": ("positions", model.positions.kind, "positions"),
        "block norm": ("norms", model.norm.kind, "block_norm"),
        "final norm": ("norms", model.norm.kind, "final_norm"),
        "query and key norm": ("norms", model.attention.qk_norm, "attention"),
        "mlp": ("mlps", model.mlp.kind, "mlp"),
    }
    described = {}
    for site, (kind, name, own) in chosen.items():
        path = getattr(model.modules, own)
        if path is None:
            found = find_part(kind, name, site)
            within = getattr(found.module, "stands", None)
            if getattr(model.modules, str(within), None):
                continue  # an attention of the user's own may have the study's positions, or not
            about = {"name": found.name, "title": found.title, "describe": found.describe}
            described[site] = about | {"source": found.source}
    if model.norm.placement == "post":
        described.pop("final norm", None)
    for site, path in model.modules.named.items():
        title = path.partition(":")[2]
        described[site] = {"name": path, "title": title, "describe": "", "source": ""}
    return described
