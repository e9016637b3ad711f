"""Does a user's own code replace what everybody uses? Functions are compared before and after.

An arm that sets `torch.nn.functional.gelu` when it is imported changes parts of the model that it
does not declare. Watched are the public functions and classes of the libraries that a model is
computed with, methods of tensors and modules, and all of paribus that is loaded.

What this cannot do: it sees other objects in the place of functions, not another body within one
(`function.__code__`), and nothing that is put back before it looks. Settings of PyTorch and NumPy
that all computations of a process follow, such as threads, precision and default dtype, are
compared too. It finds accidents and shortcuts; what code does to other arms is prevented by
processes of their own, whatever it does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
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
METHODS = ("forward", "__init__", "__call__")  # of the classes of torch.nn


class Value(str):
    """A setting, as text: it is compared, where an object must be the same one."""

    __slots__ = ()


Watched = dict[str, object]  # by full name; the objects are held, so that none takes another's id


def watched() -> Watched:
    """What is watched of the libraries that are loaded, and of paribus."""
    return _settings() | dict(_watched())


def require_unchanged(before: Watched, where: str) -> None:
    """Raise ParibusError where something watched was replaced or taken away since `before`."""
    now = watched()
    changed = [name for name, value in before.items() if not _same(value, now.get(name))]
    if changed and isinstance(was := before[changed[0]], Value):
        raise ParibusError(
            f"{where} changes {changed[0]} from {was} to {now.get(changed[0])}, which all of a "
            "trial is computed with and the arm does not declare; leave it as it is"
        )
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ParibusError(
            f"{where} replaces {changed[0]}{more}, which parts of the model use that the arm does "
            "not declare; define a function or module of your own"
        )


def _same(before: object, now: object) -> bool:
    return now is before or (isinstance(before, Value) and before == now)


def _settings() -> Watched:
    """What all computations of the process follow, of the libraries that are loaded."""
    found: dict[str, object] = {"os.getcwd()": os.getcwd()}
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
    return {name: Value(value) for name, value in found.items()}


def _asked(setting: Callable[[], object]) -> object:
    try:
        return setting()
    except RuntimeError as error:  # PyTorch has two ways to set a precision, and refuses both
        return str(error)


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
