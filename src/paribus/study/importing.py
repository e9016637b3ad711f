"""Import of custom code by import path. All custom modules, probes and corpora are loaded here.

`package.module:name` is imported; `file.py:name` is read from a file, relative to the study.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.untrusted_io import is_regular

EXAMPLES = Path(__file__).resolve().with_name("examples")  # studies that ship, and their code
OWN_FOLDERS: list[str] = []  # of custom code, which this process added to `sys.path`


def add_own_folder(folder: Path) -> None:
    """Add `folder` to the end of `sys.path`, so that installed modules take precedence."""
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)
        OWN_FOLDERS.append(path)


def load_own(
    path: str,
    where: str,
    kind: str,
    wanted: type | Callable[[object], bool],
    folder: Path,
) -> Any:
    """Return the object at import path `path`, if it is an instance of `wanted` or `wanted`
    accepts it.

    `where` and `kind` are for the errors. Raises ParibusError.
    """

    def is_wanted(value: object) -> bool:
        return isinstance(value, wanted) if isinstance(wanted, type) else wanted(value)

    module_name, colon, name = path.partition(":")
    if not colon or not name:
        raise ParibusError(f"{where} must be 'package.module:name' or 'file.py:name'")
    module = _load(module_name, folder, where)
    value = getattr(module, name, None)
    if is_wanted(value):
        return value
    known = [name for name, value in vars(module).items() if is_wanted(value)]
    why = f"no {kind} of that name: {nearest(name, known)}"
    if callable(value):
        why = f"'{name}' may lack its decorator or base class; {nearest('', known)}"
    raise ParibusError(f"{where}: {why}", code="unknown")


def own_file(name: str, folder: Path) -> Path:
    """Return the path of the user's file `name`, relative to the study's `folder`.

    If the folder has no such file, return the file of that name that ships beside an example: an
    example is found by its name, and its relative paths start at the working directory.
    """
    file = folder / name
    shipped = {path.name: path for path in EXAMPLES.glob("*/*.py")}
    return shipped.get(name, file) if not is_regular(file) else file


def no_file(where: str, file: Path) -> ParibusError:
    """Return the error for a missing custom file, with the nearest file name beside it."""
    known = [sibling.name for sibling in file.parent.glob("*.py") if sibling != file]
    hint = f": {nearest(file.name, known)}" if known else ""
    return ParibusError(
        f"{where}: no file {file}{hint}; paths start at the study's folder", code="missing"
    )


def _load(name: str, folder: Path, where: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        file = own_file(name, folder).resolve()
        add_own_folder(folder)  # files beside it can be imported
        # One module object for a file, under a name of its own that no import can meet.
        alias = f"paribus_own_{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"
        if alias in sys.modules:
            return sys.modules[alias]
        spec = importlib.util.spec_from_file_location(alias, file)
        assert spec is not None and spec.loader is not None
        module = sys.modules[alias] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[alias]
            raise
        return module
    except FileNotFoundError:
        raise no_file(where, folder / name) from None
    except ParibusError:
        raise
    except (Exception, SystemExit) as error:  # one that exits would end the command in silence
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, ValidationError):  # of what it declares
            why = explain(error)
        raise ParibusError(f"{where} cannot be imported: {why}", code="own_code") from error
