"""The user's own code, by import path: modules, probes and corpora are loaded here and only here.

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

from paribus.errors import ParibusError, nearest
from paribus.search_path import add_own_folder
from paribus.study.guard import require_unchanged, watched

STUDY_FOLDER = "the study's folder"  # where relative paths start, as a rule


def load_own(
    path: str,
    where: str,
    kind: str,
    is_wanted: Callable[[object], bool],
    folder: Path,
    start: str = STUDY_FOLDER,
) -> Any:
    """Return what `path` names, if it is wanted; `where`, `kind` and `start` are for the errors.

    Raises ParibusError.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not name:
        raise ParibusError(f"{where} must be 'package.module:name' or 'file.py:name'")
    module = _load(module_name, folder, where, start)
    found = getattr(module, name, None)
    if not is_wanted(found):
        known = [name for name, value in vars(module).items() if is_wanted(value)]
        raise ParibusError(f"{where}: no {kind} of that name: {nearest(name, known)}")
    return found


def no_file(where: str, file: Path, start: str = STUDY_FOLDER) -> ParibusError:
    """Return the error for a file of the user's own that is not there: it names the nearest
    beside it.

    `start` says where relative paths start.
    """
    known = [one.name for one in file.parent.glob("*.py") if one != file]
    return ParibusError(
        f"{where}: no file {file}: {nearest(file.name, known)}; paths start at {start}"
    )


def _load(name: str, folder: Path, where: str, start: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            if name in sys.modules:
                return sys.modules[name]
            before = watched()
            module = importlib.import_module(name)
            require_unchanged(before, where)
            return module
        file = (folder / name).resolve()
        add_own_folder(folder)  # files beside it can be imported
        # One module object for a file, under a name of its own that no import can meet.
        alias = f"paribus_own_{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"
        if alias in sys.modules:
            return sys.modules[alias]
        spec = importlib.util.spec_from_file_location(alias, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[alias] = module
        before = watched()
        try:
            spec.loader.exec_module(module)
            require_unchanged(before, where)
        except BaseException:
            del sys.modules[alias]
            raise
        return module
    except FileNotFoundError:
        raise no_file(where, folder / name, start) from None
    except ParibusError:
        raise
    except (Exception, SystemExit) as error:  # one that exits would end the command in silence
        raise ParibusError(
            f"{where} cannot be imported: {type(error).__name__}: {error}"
        ) from error
