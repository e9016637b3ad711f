"""Loading of custom code by import path, and digests of its source files.

The import path `file.py:name` refers to an object in a file, relative to the study's folder. The
file may import installed packages.

Digests are computed without running any code. They cover the file and, recursively, every module
that it imports from the study's folder. Dynamic imports (`importlib`) and data files are not
covered.
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
from paribus.untrusted_io import is_regular, read_bytes

EXAMPLES = Path(__file__).resolve().with_name("examples")  # built-in studies and their code
OWN_FOLDERS: list[str] = []  # of custom code, which this process added to `sys.path`
OWN_MODULE = "paribus_own_"  # prefix of the names of modules with custom code
SOURCES = "sources"  # in a results folder: the files that its study names
# {file: "file:" and its SHA-256}; files as they are named below the study's folder.
Sources = dict[str, str]


def add_own_folder(folder: Path) -> None:
    """Append `folder` to `sys.path`, so that installed modules take precedence."""
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
    """Import a custom object by its import path, and check its type.

    Args:
        kind: singular noun for the object, used in error messages.
        wanted: required class of the object, or a predicate that it must satisfy.

    Raises ParibusError if the object does not exist, cannot be imported or has the wrong type.
    """

    def is_wanted(value: object) -> bool:
        return isinstance(value, wanted) if isinstance(wanted, type) else wanted(value)

    file, _, name = path.partition(":")
    if not file.endswith(".py") or not name:
        raise ParibusError(
            f"{where} does not have the form 'file.py:name'; to use code from a package, import it "
            "in a file and refer to that file"
        )
    module = _load(own_file(file, folder, where).resolve(), folder, where)
    value = getattr(module, name, None)
    if is_wanted(value):
        return value
    known = [name for name, value in vars(module).items() if is_wanted(value)]
    why = f"the file has no {kind} with that name; {nearest(name, known)}"
    if callable(value):
        why = f"'{name}' may lack the decorator or base class for {kind}; {nearest('', known)}"
    raise ParibusError(f"{where}: {why}", code="unknown")


def own_file(name: str, folder: Path, where: str) -> Path:
    """Return the path of the custom file `name` in the study's `folder`.

    Fall back to the code of the built-in examples, because examples are loaded by name and
    resolve relative paths against the working directory.
    """
    shipped = {path.name: path for path in EXAMPLES.glob("*/*.py")}
    file = folder / name
    file = file if is_regular(file) else shipped.get(name, file)
    if not is_regular(file):
        raise ParibusError(
            f"{where}: {file} does not exist; specify a path relative to the study's folder",
            code="missing",
        )
    return file


def _load(file: Path, folder: Path, where: str) -> ModuleType:
    add_own_folder(folder)  # files beside it can be imported
    # One module object for a file, under a name of its own that no import can meet.
    alias = f"{OWN_MODULE}{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"
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
        raise ParibusError(
            f"{where} cannot be imported ({why}); fix the error in {file.name}", code="own_code"
        ) from error
    return module


def own_digests(setting: TrialSetting, folder: Path) -> dict[str, Sources]:
    """Return digests of a trial's custom source files, with the keys of `setting.own_named`.

    Paths are resolved against `folder`. Raises ParibusError if a source file does not exist.
    """
    return {
        key: _sources(path, key if "." in key else f"model.modules.{key}", folder)
        for key, path in setting.own_named.items()
    }


def digests_of(names: Iterable[str], key: str, folder: Path) -> dict[str, Sources]:
    """Return digests of custom source files, keyed by import path, without built-in names."""
    return {name: _sources(name, key, folder) for name in names if ":" in name}


def _sources(path: str, where: str, folder: Path) -> Sources:
    return {
        source_name(file, folder): f"file:{hashlib.sha256(content).hexdigest()}"
        for file, content in own_files(path, folder, f"{where} = '{path}'").items()
    }


def source_name(file: Path, folder: Path) -> str:
    """Return the name under which a source file is recorded.

    The name is the path relative to `folder`, or the bare file name for a built-in example.
    """
    return os.path.relpath(file, file.parent if file.is_relative_to(EXAMPLES) else folder.resolve())


def changed_sources(earlier: Sources, now: Sources) -> set[str]:
    """Return the names of files that were added, removed or changed."""
    return {file for file, _ in earlier.items() ^ now.items()}


def sources_folder(results: Path) -> Path:
    """Return the folder against which relative paths in `study.json` are resolved."""
    return results / SOURCES if (results / SOURCES).is_dir() else results


def own_files(path: str, folder: Path, where: str) -> dict[Path, bytes]:
    """Return {file: content} for the file of an import path and all files that it imports."""
    file, root = own_file(path.partition(":")[0], folder, where).resolve(), folder.resolve()
    if not file.is_relative_to(root) or file.is_relative_to(EXAMPLES):
        root = file.parent
    contents: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        source = waiting.pop()
        if source not in contents:
            contents[source] = content = read_bytes(source)
            try:
                waiting += _imported(source, content, root)
            except SyntaxError as error:
                raise ParibusError(
                    f"{where}: {source.name} is not valid Python ({error}); fix the syntax error"
                ) from None
    return dict(sorted(contents.items()))


def _imported(file: Path, content: bytes, root: Path) -> Iterator[Path]:
    """Yield the files inside `root` that `file` imports directly."""
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
