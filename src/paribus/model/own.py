"""The user's own modules, by import path.

`package.module:Class` is imported; `file.py:Class` is read from a file, relative to the study.
Every site's class is built as `Class(setting, vocab_size)` and has the forward of what it replaces
(see `gpt.py`). An own embedding stage also has `tokens`, an `nn.Embedding` that the head shares.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from torch import nn

from paribus.errors import ParibusError, nearest


def site_class(path: str | None, site: str, folder: Path) -> type[nn.Module] | None:
    """The class that `path` names for `site`; None where there is no path."""
    if path is None:
        return None
    where = f"model.modules.{site} = '{path}'"
    module_name, colon, class_name = path.partition(":")
    if not colon or not class_name:
        raise ParibusError(f"{where} must be 'package.module:Class' or 'file.py:Class'")
    module = _load(module_name, folder, where)
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        known = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ParibusError(f"{where}: no nn.Module of that name: {nearest(class_name, known)}")
    return cls


def _load(name: str, folder: Path, where: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        file = (folder / name).resolve()
        # One module object for a file, under a name of its own that no import can meet.
        alias = f"paribus_own_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
        if alias in sys.modules:
            return sys.modules[alias]
        spec = importlib.util.spec_from_file_location(alias, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[alias] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[alias]
            raise
        return module
    except FileNotFoundError:
        raise ParibusError(
            f"{where}: no file {folder / name}; paths start at the study's folder"
        ) from None
    except Exception as error:
        raise ParibusError(
            f"{where} cannot be imported: {type(error).__name__}: {error}"
        ) from error
