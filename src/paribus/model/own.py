"""The user's own modules, by import path.

Every site's class is built as `Class(setting, vocab_size)` and has the forward of what it replaces
(see `gpt.py`). An own embedding stage also has `tokens`, an `nn.Embedding` that the head shares.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from paribus.study.importing import load_own


def site_class(path: str | None, site: str, folder: Path) -> type[nn.Module] | None:
    """The class that `path` names for `site`; None where there is no path."""
    if path is None:
        return None
    where = f"model.modules.{site} = '{path}'"
    return load_own(path, where, "nn.Module", _is_module_class, folder)


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)
