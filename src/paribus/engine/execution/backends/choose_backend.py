"""Which backend a command was given, and calls of it: it may be the user's own code.

Where workers run is said on the command line or in Python, never in a study or a results folder:
those may be a stranger's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from paribus.declared import DECLARED, declared
from paribus.engine.execution.backends.declare_backend import (
    Backend,
    BackendClass,
    Hear,
    WorkerProcess,
)
from paribus.errors import ParibusError
from paribus.study.choices import read_options, require_declared
from paribus.study.importing import load_own
from paribus.untrusted_io import is_regular

PACKAGE = "paribus.engine.execution.backends"
WORD = "--backend"
# What is called of a backend and of a process that it started, with the arguments.
METHODS = {
    "start": ("hear",),
    "start_fresh": ("hear",),
    "default_workers": ("device", "devices"),
    "devices": ("device", "found"),
    "is_surely_cpu": ("device",),
}
PROCESS_METHODS = {"send": ("line",), "stop": (), "close": (), "end": ()}
OF_RESULTS = ("registration.json", "study.json")  # either makes a folder one of results

Given = TypeVar("Given")


def find_backend(chosen: str | Backend, options: Mapping[str, Any] | None = None) -> Backend:
    """The backend of that name, or at that import path; one that is made already is checked.

    A file of the user's own starts at the current folder, as every path of a command line, and does
    not lie in a results folder.

    Raises ParibusError where there is none, for options that it does not declare, and where a
    method is missing or takes other arguments.
    """
    if isinstance(chosen, Backend):
        chosen.name = chosen.name or type(chosen).__name__
        _require_methods(chosen, f"backend '{chosen.name}'", METHODS)
        return chosen
    where = f"{WORD} {chosen}"
    of = _own(chosen, where) if ":" in chosen else _shipped(chosen)
    _require_methods(of.make, where, METHODS)
    given = read_options(of.options, options or {}, f"{WORD}-option", chosen)
    made = _guarded(where, "its constructor", lambda: of.make(given))
    _require_methods(made, where, METHODS)
    made.name = of.name
    return made


def called(backend: Backend, method: str, *arguments: Any) -> Any:
    """What a method of a backend gives. Raises ParibusError where it fails, in its words."""
    where = f"backend '{backend.name}'"
    return _guarded(where, method, lambda: getattr(backend, method)(*arguments))


def start_process(backend: Backend, hear: Hear, *, is_fresh: bool = False) -> WorkerProcess:
    """A worker that `backend` has started. Raises ParibusError where it starts none."""
    process = called(backend, "start_fresh" if is_fresh else "start", hear)
    _require_methods(process, f"what backend '{backend.name}' started", PROCESS_METHODS)
    return process


def _shipped(name: str) -> BackendClass:
    return require_declared(name, declared(PACKAGE, BackendClass), WORD, "backend", PACKAGE)


def _own(path: str, where: str) -> BackendClass:
    """What a class of the user's own declares."""
    file = Path(path.partition(":")[0])
    if file.suffix == ".py" and (held := _results_folder(file.resolve())):
        raise ParibusError(
            f"{where}: {file} lies in the results folder {held}, which is data and is not run; "
            "move it to a folder of your own"
        )
    found: type = load_own(path, where, "backend", _is_class, Path.cwd(), "the current folder")
    of = vars(found).get(DECLARED)
    if not (isinstance(of, BackendClass) and issubclass(found, Backend)):
        raise ParibusError(
            f"{where}: {found.__name__} is no backend: it must be a subclass of "
            f'{PACKAGE}.Backend under @backend("name")'
        )
    return of


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _results_folder(file: Path) -> Path | None:
    """The results folder that `file` lies in."""
    return next(
        (one for one in file.parents if any(is_regular(one / name) for name in OF_RESULTS)), None
    )


def _require_methods(of: object, where: str, methods: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ParibusError where `of` lacks one of `methods`, or one takes other arguments."""
    for name, arguments in methods.items():
        method = getattr(of, name, None)
        wanted = f"{name}({', '.join(arguments)})"
        if not callable(method) or getattr(method, "__isabstractmethod__", False):
            raise ParibusError(f"{where} has no method {wanted}; see docs/backends.md")
        if isinstance(of, type):  # what its methods take is asked of the object
            continue
        try:
            signature = inspect.signature(method)
        except ValueError:  # of compiled code, which does not say
            continue
        try:
            signature.bind(*arguments)
        except TypeError:
            raise ParibusError(
                f"{where}: its method {name}{signature} is called as {wanted}; see docs/backends.md"
            ) from None


def _guarded(where: str, method: str, call: Callable[[], Given]) -> Given:
    try:
        return call()
    except ParibusError:
        raise
    except Exception as error:  # it may be the user's code
        raise ParibusError(f"{where}: {method} failed: {type(error).__name__}: {error}") from error
