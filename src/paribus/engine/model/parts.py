"""Parts of a model: shipped ones by name, custom ones by import path.

Shipped parts are declared in `norms/`, `positions/`, `mlps/` and `attentions/`; a study names a
custom part as `model.modules.<site>`. Every part is an `nn.Module` built from a `ModelConfig`, a
custom one as `Class(model)` with the forward of the part that it replaces (see `gpt`). A class may
declare as attributes:

    residual_projections, undecayed    uses of its parameters (`uses`)
    auxiliaries = ("balance",)         auxiliary losses that it adds to (`shared`)
    cached = True                      it can read a text piece by piece (`attentions`); without it,
                                       every generated token costs a pass over the whole text
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
from paribus.engine.setting.architecture import Model
from paribus.errors import blamed
from paribus.study.choices import require_declared
from paribus.study.custom_code import load_own

PACKAGE = __name__.rpartition(".")[0]
KINDS = {  # folder -> noun
    "norms": "norm",
    "positions": "kind of positions",
    "mlps": "MLP",
    "attentions": "attention",
}


class ModelConfig(Model):
    """The model section of a setting, with the sizes that other sections set; frozen.

    A part reads `model.d_model`, `model.n_head`, `model.attention.window` and all other keys of
    `[model]` in a study.
    """

    seq_len: int
    """Tokens in a window; no position is beyond."""
    vocab_size: int
    dropout: float = 0.0
    layer: int | None = None
    """Number of the part's block, from 0; None outside of blocks."""
    folder: Path
    """Where the import paths of custom modules start: the study's folder."""

    @classmethod
    def of(cls, setting: Setting, vocab_size: int, folder: Path | None = None) -> Self:
        """Return the configuration of a setting's model; `folder` is the current one by default."""
        return cls.model_construct(
            **dict(setting.model),
            seq_len=setting.data.seq_len,
            vocab_size=vocab_size,
            dropout=setting.training.dropout,
            folder=folder or Path.cwd(),
        )

    def in_block(self, layer: int) -> Self:
        """Return a copy for the parts of a block."""
        return self.model_copy(update={"layer": layer})


@dataclass(frozen=True)
class Part:
    """A shipped part: its name in studies, its class, and whether that is an attention that can
    read piece by piece with a cache."""

    name: str
    module: type[nn.Module]
    cached: bool


M = TypeVar("M", bound=type[nn.Module])


def part(name: str, *, cached: bool = False) -> Callable[[M], M]:
    """Declare a class as a shipped part; the class itself is unchanged."""

    def declare(module: M) -> M:
        setattr(module, DECLARED, Part(name, module, cached))
        return module

    return declare


@cache
def parts(kind: str) -> dict[str, Part]:
    """Return the shipped parts of a kind, a key of `KINDS`, by name."""
    return declared(f"{PACKAGE}.{kind}", Part)


def find_part(kind: str, name: str, key: str) -> Part:
    """Return a part that a study names under `key`. Raises ParibusError."""
    hint = "your own goes to model.modules"
    return require_declared(name, parts(kind), key, KINDS[kind], f"{PACKAGE}.{kind}", hint)


def module_class(path: str, key: str, folder: Path) -> type[nn.Module]:
    """Return the class that a study names under `key`. Raises ParibusError."""

    def is_module_class(value: object) -> bool:
        return isinstance(value, type) and issubclass(value, nn.Module)

    return load_own(path, key, "nn.Module", is_module_class, folder)


def custom_part(model: ModelConfig, site: str) -> Any:
    """Build the custom module at `site`, or return None without one. Raises ParibusError."""
    path = getattr(model.modules, site)
    if path is None:
        return None
    label = f"model.modules.{site} = '{path}'"
    cls = module_class(path, label, model.folder)
    with blamed(f"{label} cannot be built as {cls.__name__}(model), model a ModelConfig"):
        module = cls(model)
        module.state_dict()  # fails if the class does not call nn.Module.__init__
    return module
