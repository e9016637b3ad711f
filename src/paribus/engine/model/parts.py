"""Lookup of model parts: built-in parts by name, custom parts by import path.

Built-in parts are declared in `norms/`, `positions/`, `mlps/` and `attentions/`; custom parts are
set in `model.modules`. Every part is an `nn.Module` built from a `ModelConfig`. A custom part is
built as `Class(model)`, and has the same `forward` as the part that it replaces (see `gpt`). Its
class may define these attributes:

    residual_projections, undecayed    roles of its parameters (see `uses`)
    auxiliaries = ("balance",)         names of its auxiliary losses (see `shared`)
    cached = True                      support for a key-value cache (see `attentions`); otherwise,
                                       generation recomputes the whole sequence for every token
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
    """Frozen configuration of a model: the `[model]` section, and sizes from other sections.

    Parts read `model.d_model`, `model.n_head`, `model.attention.window` and all other keys in the
    `[model]` section of a study.
    """

    seq_len: int
    """Maximum sequence length in tokens."""
    vocab_size: int
    dropout: float = 0.0
    layer: int | None = None
    """0-based index of the part's block, or None outside blocks."""
    folder: Path
    """Study folder, against which import paths of custom modules are resolved."""

    @classmethod
    def from_setting(cls, setting: Setting, vocab_size: int, folder: Path | None = None) -> Self:
        """Create a model configuration from a setting.

        Args:
            folder: folder against which import paths are resolved; None means the working
                directory.
        """
        return cls.model_construct(
            **dict(setting.model),
            seq_len=setting.data.seq_len,
            vocab_size=vocab_size,
            dropout=setting.training.dropout,
            folder=folder or Path.cwd(),
        )

    def in_block(self, layer: int) -> Self:
        """Return a copy for the parts in block `layer`."""
        return self.model_copy(update={"layer": layer})


@dataclass(frozen=True)
class Part:
    """Declaration of a built-in part.

    Attributes:
        name: Name in study files.
        module: Class of the part.
        cached: Whether the part is an attention that supports a key-value cache.
    """

    name: str
    module: type[nn.Module]
    cached: bool


M = TypeVar("M", bound=type[nn.Module])


def part(name: str, *, cached: bool = False) -> Callable[[M], M]:
    """Return a class decorator that declares a built-in part called `name`."""

    def declare(module: M) -> M:
        setattr(module, DECLARED, Part(name, module, cached))
        return module

    return declare


@cache
def parts(kind: str) -> dict[str, Part]:
    """Return the built-in parts of a kind (a key of `KINDS`), keyed by name."""
    return declared(f"{PACKAGE}.{kind}", Part)


def find_part(kind: str, name: str, key: str) -> Part:
    """Return the built-in part called `name` of a kind (a key of `KINDS`).

    Raises ParibusError if there is no such part, naming the study's `key`.
    """
    site = key.split(".")[1]
    site = "block_norm and model.modules.final_norm" if site == "norm" else site
    hint = f"set model.modules.{site} to a custom module, 'file.py:Class'"
    return require_declared(name, parts(kind), key, KINDS[kind], hint)


def module_class(path: str, key: str, folder: Path) -> type[nn.Module]:
    """Import the class of a custom module, such as "parts.py:MyNorm" in `folder`.

    Raises ParibusError if `path` does not refer to a subclass of `nn.Module`, naming the study's
    `key`.
    """

    def is_module_class(value: object) -> bool:
        return isinstance(value, type) and issubclass(value, nn.Module)

    return load_own(path, key, "nn.Module", is_module_class, folder)


def custom_part(model: ModelConfig, site: str) -> Any:
    """Build the custom module that `model.modules` sets for `site`, or return None if unset.

    Raises ParibusError if the module cannot be built.
    """
    path = getattr(model.modules, site)
    if path is None:
        return None
    label = f"model.modules.{site} = '{path}'"
    cls = module_class(path, label, model.folder)
    with blamed(f"{label} cannot be constructed as {cls.__name__}(model) with a ModelConfig"):
        module = cls(model)
        module.state_dict()  # fails if the class does not call nn.Module.__init__
    return module
