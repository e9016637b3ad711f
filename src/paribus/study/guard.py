"""Does a user's own code replace what everybody uses? Functions are compared before and after.

An arm that sets `torch.nn.functional.gelu` when it is imported changes parts of the model that it
does not declare. Watched are the public functions and classes of the libraries that a model is
computed with, methods of tensors and modules, and all of paribus that is loaded.

What this cannot do: it sees other objects in the place of functions, not another body within one
(`function.__code__`), not settings of a library (such as a default dtype), and nothing that is put
back before it looks. It finds accidents and shortcuts; what code does to other arms is prevented by
processes of their own, whatever it does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
METHODS = ("forward", "__init__", "__call__")  # of the classes of torch.nn

Watched = dict[str, object]  # by full name; the objects are held, so that none takes another's id


def watched() -> Watched:
    """What is watched of the libraries that are loaded, and of paribus."""
    return dict(_watched())


def require_unchanged(before: Watched, where: str) -> None:
    """Raise ParibusError where something watched was replaced or taken away since `before`."""
    now = watched()
    changed = [name for name, value in before.items() if now.get(name) is not value]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ParibusError(
            f"{where} replaces {changed[0]}{more}, which parts of the model use that the arm does "
            "not declare; define a function or module of your own"
        )


def _watched() -> Iterator[tuple[str, object]]:
    ours = [name for name in sys.modules if name == "paribus" or name.startswith("paribus.")]
    for module_name in (*LIBRARIES, *ours):
        module = sys.modules.get(module_name)
        if not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            if not callable(value) or name.startswith("__"):
                continue
            yield f"{module_name}.{name}", value
            if isinstance(value, type):
                yield from _methods(f"{module_name}.{name}", value, module_name in ours)


def _methods(where: str, of: type, is_ours: bool) -> Iterator[tuple[str, object]]:
    if is_ours or where in ("torch.Tensor", "torch.nn.Module"):
        for name, value in list(vars(of).items()):
            if isinstance(value, FunctionType):
                yield f"{where}.{name}", value
    elif where.startswith("torch.nn."):
        for name in METHODS:
            if name in vars(of):
                yield f"{where}.{name}", vars(of)[name]
