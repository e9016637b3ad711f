"""Parts of a model: those that ship, found by name in `norms/`, `positions/`, `mlps/` and
`attentions/`; or the user's own, by import path (`model.modules.<site>`).

Every part is an `nn.Module` and is built from a `ModelConfig`; one of the user's own as
`Class(model)`, with the forward of what it replaces (see `gpt`). What it may declare, as attributes
of its class:

    residual_projections, undecayed    what its parameters are for (`uses`)
    auxiliaries = ("balance",)         losses that it adds to, where its forward takes `shared`
                                       (`shared`)
    cached = True                      reading a text piece by piece gives what reading it at once
                                       gives (`attentions`). Without it every new token costs a pass
                                       over the whole text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import nn

from paribus.declared import DECLARED, declared
from paribus.engine.setting import Setting
from paribus.engine.setting.architecture import CAUSAL, Model
from paribus.errors import ParibusError
from paribus.study.choices import no_such
from paribus.study.importing import load_own

PACKAGE = "paribus.engine.model"
WORDS = {  # by folder
    "norms": "norm",
    "positions": "kind of positions",
    "mlps": "MLP",
    "attentions": "attention",
}


class ModelConfig(Model):
    """The model's part of a setting, and the sizes that come from elsewhere; frozen.

    Every part is built as `Part(model)` with one of these: `model.d_model`, `model.n_head`,
    `model.attention.window` and all other keys of `[model]` in a study.
    """

    seq_len: int
    """Tokens in a window: no position is beyond."""
    vocab_size: int
    dropout: float = 0.0
    layer: int | None = None
    """The number of the block that the part is in, from 0; None outside of blocks."""

    @classmethod
    def of(cls, setting: Setting, vocab_size: int) -> Self:
        """Return what `setting` says of the model."""
        return cls.model_construct(
            **dict(setting.model),
            seq_len=setting.data.seq_len,
            vocab_size=vocab_size,
            dropout=setting.training.dropout,
        )

    def in_block(self, layer: int) -> Self:
        """Return the same for the parts of a block."""
        return self.model_copy(update={"layer": layer})


@dataclass(frozen=True)
class Part:
    """A part that a file declares.

    Attributes:
        name: its value in a study, and the name of its file.
        title: what readers call it, as a noun.
        describe: what it does, to follow "The model has" or stand in brackets.
        source: where it is from.
        module: the class.
        cached: of an attention, whether it reads piece by piece with a cache.
    """

    name: str
    title: str
    describe: str
    source: str
    module: type[nn.Module]
    cached: bool


M = TypeVar("M", bound=type[nn.Module])


def part(
    name: str, *, title: str, describe: str, source: str = "", cached: bool = False
) -> Callable[[M], M]:
    """Declare a class as a part that ships; the class stays what it is."""

    def declare(module: M) -> M:
        setattr(module, DECLARED, Part(name, title, describe, source, module, cached))
        return module

    return declare


@cache
def parts(kind: str) -> dict[str, Part]:
    """Return the parts that ship of a kind, a key of `WORDS`, by name."""
    return declared(f"{PACKAGE}.{kind}", Part)


def find_part(kind: str, name: str, key: str) -> Part:
    """Return the part of that name; `key` is where a study names it. Raises ParibusError."""
    found, package = parts(kind), f"{PACKAGE}.{kind}"
    if name not in found:
        word = WORDS[kind]
        raise no_such(name, found, key, word, package, "your own goes to model.modules")
    return found[name]


def module_class(path: str, where: str, folder: Path) -> type[nn.Module]:
    """Return the class that `path` names; `where` says who names it. Raises ParibusError."""

    def is_module_class(value: object) -> bool:
        return isinstance(value, type) and issubclass(value, nn.Module)

    return load_own(path, where, "nn.Module", is_module_class, folder)


def own_part(model: ModelConfig, site: str, folder: Path) -> Any:
    """Build the user's own module at `site`; None where there is none. Raises ParibusError."""
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
    """Return by site the name, title and description of what is there: for records and readers.

    The user's own are described by their import path; an attention that is causal is not told.
    """
    chosen = {
        "embedding norm": ("norms", model.embedding.norm, "embedding"),
        "positions": ("positions", model.positions.kind, "positions"),
        "block norm": ("norms", model.norm.kind, "block_norm"),
        "final norm": ("norms", model.norm.kind, "final_norm"),
        "attention": ("attentions", model.attention.kind, "attention"),
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
    if model.attention.kind == CAUSAL:
        described.pop("attention", None)  # so that records say what they said before others were
    if model.norm.placement == "post":
        described.pop("final norm", None)
    for site, path in model.modules.named.items():
        title = path.partition(":")[2]
        described[site] = {"name": path, "title": title, "describe": "", "source": ""}
    return described
