"""Loading of custom code by its import path, and digests of its source files.

The import path `file.py:name` is an object in a file whose path is relative to the study's folder.
The file may import installed packages.

Digests are computed without running any code. The source of a part is its file and, recursively,
every module that it imports from below the study's folder. Modules that are imported by a name
computed at run time are not included, nor are files that are read as data.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.study.base import TrialSetting
from paribus.untrusted_io import CODE_BYTES, is_regular, read_bytes

EXAMPLES = Path(__file__).resolve().with_name("examples")  # built-in studies and their code
OWN_FOLDERS: list[str] = []  # of custom code, which this process added to `sys.path`
SOURCES = "sources"  # in a results folder: the files that its study names
# {file: "file:" and its SHA-256}; files as they are named below the study's folder.
Sources = dict[str, str]


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
    """Import a custom object and check its type.

    Args:
        path: import path of the object.
        where: the study key that holds the path, for errors.
        kind: the kind of object, for errors.
        wanted: class of the object, or a predicate that it must satisfy.
        folder: folder at which the path starts.

    Raises:
        ParibusError: if the object does not exist, cannot be imported or is of another type.
    """

    def is_wanted(value: object) -> bool:
        return isinstance(value, wanted) if isinstance(wanted, type) else wanted(value)

    file, _, name = path.partition(":")
    if not file.endswith(".py") or not name:
        raise ParibusError(
            f"{where} must be 'file.py:name'; to use code from a package, import it in such a file"
        )
    module = _load(own_file(file, folder, where).resolve(), folder, where)
    value = getattr(module, name, None)
    if is_wanted(value):
        return value
    known = [name for name, value in vars(module).items() if is_wanted(value)]
    why = f"the file has no {kind} with that name; {nearest(name, known)}"
    if callable(value):
        why = f"'{name}' may lack its decorator or base class; {nearest('', known)}"
    raise ParibusError(f"{where}: {why}", code="unknown")


def own_file(name: str, folder: Path, where: str) -> Path:
    """Return the path of the custom file `name` in the study's `folder`.

    If the folder has no such file, return the file with that name beside a built-in example. An
    example is loaded by name, so its relative paths start at the working directory.
    """
    shipped = {path.name: path for path in EXAMPLES.glob("*/*.py")}
    file = folder / name
    file = file if is_regular(file) else shipped.get(name, file)
    if not is_regular(file):
        raise ParibusError(
            f"{where}: {file} does not exist; give a path relative to the study's folder",
            code="missing",
        )
    return file


def _load(file: Path, folder: Path, where: str) -> ModuleType:
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
    except BaseException as error:
        del sys.modules[alias]
        # A file that calls exit() would end the command in silence.
        if isinstance(error, ParibusError) or not isinstance(error, (Exception, SystemExit)):
            raise
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, ValidationError):  # of what it declares
            why = explain(error)
        raise ParibusError(f"{where} cannot be imported: {why}", code="own_code") from error
    return module


def own_digests(setting: TrialSetting, folder: Path) -> dict[str, Sources]:
    """Return the digests of a trial's custom code, with the same keys as `setting.own_named`.

    Paths are relative to `folder`. Raises ParibusError if a source file does not exist.
    """
    return {
        key: _sources(path, key if "." in key else f"model.modules.{key}", folder)
        for key, path in setting.own_named.items()
    }


def digests_of(names: Iterable[str], key: str, folder: Path) -> dict[str, Sources]:
    """Return the digests of custom code, keyed by import path.

    Args:
        names: names of parts; those that are not import paths are skipped.
        key: the study key that holds the names, for errors.
        folder: folder at which import paths start.
    """
    return {name: _sources(name, key, folder) for name in names if ":" in name}


def _sources(path: str, where: str, folder: Path) -> Sources:
    return {
        source_name(file, folder): f"file:{hashlib.sha256(content).hexdigest()}"
        for file, content in own_files(path, folder, f"{where} = '{path}'").items()
    }


def source_name(file: Path, folder: Path) -> str:
    """Return a source file's name in the records.

    It is the path relative to the study's folder, or the file name for code of a built-in example.
    """
    return os.path.relpath(file, file.parent if file.is_relative_to(EXAMPLES) else folder.resolve())


def changed_sources(earlier: Sources, now: Sources) -> set[str]:
    """Return the files that were added, removed or changed."""
    return {file for file, _ in earlier.items() ^ now.items()}


def sources_folder(results: Path) -> Path:
    """Return the folder against which a results folder's study resolves relative paths."""
    return results / SOURCES if (results / SOURCES).is_dir() else results


def own_files(path: str, folder: Path, where: str) -> dict[Path, bytes]:
    """Return {file: content} for the file in an import path and the files that it imports.

    Args:
        path: import path, `file.py:name`.
        folder: folder at which the path starts.
        where: the study key that holds the path, for errors.
    """
    file, root = own_file(path.partition(":")[0], folder, where).resolve(), folder.resolve()
    if not file.is_relative_to(root) or file.is_relative_to(EXAMPLES):
        root = file.parent
    contents: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        source = waiting.pop()
        if source not in contents:
            contents[source] = content = read_bytes(source, CODE_BYTES)
            try:
                waiting += _imported(source, content, root)
            except SyntaxError as error:
                raise ParibusError(
                    f"{where}: {source.name} cannot be parsed as Python: {error}"
                ) from None
    return dict(sorted(contents.items()))


def _imported(file: Path, content: bytes, root: Path) -> Iterator[Path]:
    """Yield the files below `root` that `file` imports."""
    for node in ast.walk(ast.parse(content)):
        start, names = root, []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if node.level else root
            names = [".".join(filter(None, [node.module, alias.name])) for alias in node.names]
        for name in names:
            # The last part of a `from` may be no module.
            modules = [start.joinpath(*name.split(".")[:n]) for n in range(name.count(".") + 2)]
            files = [module / "__init__.py" for module in modules if module != root]
            files += [module.with_suffix(".py") for module in modules[1:]]
            resolved = (file.resolve() for file in files if file.is_file())
            yield from (file for file in resolved if file.is_relative_to(root))
