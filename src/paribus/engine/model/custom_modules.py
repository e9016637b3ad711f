"""The user's own modules, by import path.

Every site's class is built as `Class(model)`, with a `ModelConfig`, and has the forward of what it
replaces (see `gpt.py`). An own embedding stage also has `tokens`, an `nn.Embedding` that a tied
head shares.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from paribus.study.importing import load_own


def module_class(path: str, where: str, folder: Path) -> type[nn.Module]:
    """The class that `path` names; `where` says who names it. Raises ParibusError."""
    return load_own(path, where, "nn.Module", _is_module_class, folder)


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)
