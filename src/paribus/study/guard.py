"""Does a user's own code replace what everybody uses? Functions are compared before and after.

An arm that sets `torch.nn.functional.gelu` when it is imported changes parts of the model that it
does not declare. Watched are the public functions and classes of the libraries that a model is
computed with, methods of tensors and modules, and all of paribus that is loaded: of its functions
the bodies (`function.__code__`) and defaults as well, and its constants, such as what passes for
rounding where a look ahead is searched for.

What this cannot do: it sees no other body within a function of a library, and nothing that is put
back before it looks. Settings of PyTorch and NumPy that all computations of a process follow, such
as threads, precision and default dtype, are compared too. It finds accidents and shortcuts; what
code does to other arms is prevented by processes of their own, whatever it does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_
from types import FunctionType, ModuleType

from paribus.errors import ParibusError

LIBRARIES = (
    "math",
    "random",
    "numpy",
    "numpy.random",
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.fft",
    "torch.linalg",
    "torch.special",
    "torch.func",
    "torch.autograd",
)
# Of `torch`: how what every computation follows is asked for, and that of its backends.
ASKED = (
    "get_default_dtype",
    "get_num_threads",
    "get_num_interop_threads",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_anomaly_enabled",
    "is_autocast_enabled",
    "get_float32_matmul_precision",
    "are_deterministic_algorithms_enabled",
)
BACKENDS = {
    "mkldnn": ("enabled", "deterministic"),
    "cudnn": ("enabled", "benchmark", "deterministic", "allow_tf32"),
    "cuda.matmul": (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    ),
}
CONSTANT = (int, float, str, tuple, frozenset, dict, list, set)
METHODS = ("forward", "__init__", "__call__")  # of the classes of torch.nn


Names = dict[str, object]  # by name; objects are held, so that none takes another's id


@dataclass(frozen=True)
class Watched:
    """What a process held: settings and constants by their names, modules by theirs, classes, and
    what functions of paribus are made of.

    Of modules and classes all names are copied, at the speed of a dictionary; which of them are
    watched is asked where two copies differ.
    """

    settings: Names
    modules: dict[str, Names]
    classes: dict[type, Names]
    constants: Names
    bodies: Mapping[FunctionType, tuple[object, ...]]


def watched() -> Watched:
    """What is watched of the libraries that are loaded, and of paribus."""
    modules = {
        name: vars(module).copy()
        for name in _modules()
        if isinstance(module := sys.modules.get(name), ModuleType)
    }
    of = {
        value
        for name, names in modules.items()
        if _is_ours(name) or name.startswith("torch")
        for value in names.values()
        if isinstance(value, type)
    }
    classes = {one: vars(one).copy() for one in of}
    ours = {name: names for name, names in modules.items() if _is_ours(name)}
    functions = {
        value
        for names in (
            *ours.values(),
            *(n for one, n in classes.items() if _is_ours(one.__module__)),
        )
        for value in names.values()
        if isinstance(value, FunctionType)
    }
    bodies = {one: (one.__code__, one.__defaults__, one.__kwdefaults__) for one in functions}
    return Watched(_settings(), modules, classes, _constants(ours), bodies)


def require_unchanged(before: Watched, where: str) -> None:
    """Raise ParibusError where something watched was replaced or taken away since `before`."""
    now = watched()
    values = now.settings | now.constants
    for name, value in (before.settings | before.constants).items():
        found = values.get(name)
        if found is not value and found != value:
            raise ParibusError(
                f"{where} changes {name} from {value} to {found}, which all of a "
                "trial is computed with and the arm does not declare; leave it as it is"
            )
    if changed := list(_replaced(before, now)):
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ParibusError(
            f"{where} replaces {changed[0]}{more}, which parts of the model use that the arm does "
            "not declare; define a function or module of your own"
        )


def _replaced(before: Watched, now: Watched) -> Iterator[str]:
    """Full names of what is another object now, or is not there any more."""
    for one, made_of in before.bodies.items():
        if (one.__code__, one.__defaults__, one.__kwdefaults__) != made_of:
            yield f"{one.__module__}.{one.__qualname__}"
    changed = {
        one: names
        for one, names in before.classes.items()
        if not _same(names, now.classes.get(one) or vars(one).copy())
    }
    for module, names in before.modules.items():
        ours, after = _is_ours(module), now.modules.get(module, {})
        if not changed and _same(names, after):
            continue
        for name, value in names.items():
            if not callable(value) or name.startswith("__"):
                continue
            if after.get(name) is not value:
                yield f"{module}.{name}"
            if isinstance(value, type) and value in changed:
                full, methods = f"{module}.{name}", vars(value)
                yield from (
                    f"{full}.{method}"
                    for method, function in changed[value].items()
                    if _is_watched(full, method, function, ours)
                    and methods.get(method) is not function
                )


def _same(before: Names, now: Names) -> bool:
    """Whether these are the same objects by the same names in the same order."""
    return list(before) == list(now) and all(map(is_, before.values(), now.values()))


def _is_watched(of: str, name: str, value: object, ours: bool) -> bool:
    """Whether the method `name` of the class `of` is."""
    if ours or of in ("torch.Tensor", "torch.nn.Module"):
        return isinstance(value, FunctionType)
    return of.startswith("torch.nn.") and name in METHODS


def _modules() -> list[str]:
    """The names of the libraries, and of what is loaded of paribus."""
    return [*LIBRARIES, *filter(_is_ours, list(sys.modules))]


def _is_ours(module: str) -> bool:
    return module == "paribus" or module.startswith("paribus.")


def _constants(modules: dict[str, Names]) -> Names:
    """The numbers, words and tables of `modules`, by their full names; tables are copied."""
    return {
        f"{module}.{name}": value.copy() if isinstance(value, dict | list | set) else value
        for module, names in modules.items()
        for name, value in names.items()
        if name.isupper() and not name.startswith("_") and isinstance(value, CONSTANT)
    }


def _settings() -> Names:
    """What all computations of the process follow, of the libraries that are loaded."""
    found: Names = {"os.getcwd()": os.getcwd()}
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and hasattr(torch, "backends"):
        found |= {f"torch.{name}()": _asked(getattr(torch, name)) for name in ASKED}
        for path, names in BACKENDS.items():
            backend = attrgetter(path)(torch.backends)
            found |= {
                f"torch.backends.{path}.{name}": _asked(partial(getattr, backend, name))
                for name in names
            }
    if numpy is not None and hasattr(numpy, "geterr"):
        found["numpy.geterr()"] = numpy.geterr()
    return {name: str(value) for name, value in found.items()}


def _asked(setting: Callable[[], object]) -> object:
    try:
        return setting()
    except RuntimeError as error:  # PyTorch has two ways to set a precision, and refuses both
        return str(error)
