"""The user's own modules and probes, by import path.

`package.module:Class` is imported; `file.py:Class` is read from a file, relative to the study.
Every site's class is built as `Class(setting, vocab_size)` and has the forward of what it replaces
(see `gpt.py`). An own embedding stage also has `tokens`, an `nn.Embedding` that the head shares.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from paribus.errors import ParibusError, nearest


def site_class(path: str | None, site: str, folder: Path) -> type[nn.Module] | None:
    """The class that `path` names for `site`; None where there is no path."""
    if path is None:
        return None
    where = f"model.modules.{site} = '{path}'"
    return load_own(path, where, "nn.Module", _is_module_class, folder)


def load_own(
    path: str, where: str, kind: str, is_wanted: Callable[[object], bool], folder: Path
) -> Any:
    """What `path` names, if it is wanted; `where` and `kind` are for the errors.

    Raises ParibusError.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not name:
        raise ParibusError(f"{where} must be 'package.module:name' or 'file.py:name'")
    module = _load(module_name, folder, where)
    found = getattr(module, name, None)
    if not is_wanted(found):
        known = [name for name, value in vars(module).items() if is_wanted(value)]
        raise ParibusError(f"{where}: no {kind} of that name: {nearest(name, known)}")
    return found


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


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
