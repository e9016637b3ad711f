"""Compilation of the C++ kernels on the machine that runs them, once per compiler and processor.

Without a compiler, or with `PARIBUS_CPU_KERNELS=off`, PyTorch's kernels are used instead. Every
trial records its kernels, and all trials of a study must use the same ones.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from ctypes import c_bool, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.files import cache_folder
from paribus.programs.machine import processor

SWITCH = "PARIBUS_CPU_KERNELS"
SOURCES = Path(__file__).parent  # *.cpp and *.h
COMPILERS = ("c++", "g++", "clang++")
# Without math-errno, a square root is one instruction, with the same result.
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-march=native", "-fno-math-errno")
WIDE = {"x86_64": ("-mprefer-vector-width=512",)}
LIMIT_SECONDS = 300  # about 15 s on an idle core


_ATTENTION = (*(c_void_p,) * 3, c_bool)
_GATED = (c_void_p, c_int64, c_bool)
_NORM_SIZES = (c_bool, c_int64, c_int64)
# Arguments of every function. Only `products_pay` returns a value.
SIGNATURES: dict[str, tuple[type, ...]] = {
    "attention_forward": _ATTENTION,
    "attention_backward": _ATTENTION,
    "norm_forward": (*(c_void_p,) * 3, c_float, *_NORM_SIZES, c_void_p, c_bool, c_void_p),
    "norm_backward": (c_void_p, c_bool, *(c_void_p,) * 3, *_NORM_SIZES, *(c_void_p,) * 3),
    "activation_forward": (c_int, *(c_void_p,) * 3, c_int64, c_bool),
    "activation_backward": (*(c_void_p,) * 3, c_int64, c_bool),
    "gated_forward": _GATED,
    "gated_backward": _GATED,
    "adamw_step": (*(c_void_p,) * 5, c_float, c_int64, c_int64),
    "products_pay": (c_bool,),
    "products_rows": (c_bool, *(c_void_p,) * 3, c_bool, *(c_void_p,) * 2),
    "products_residual": (c_bool, *(c_void_p,) * 6),
    "products_activation": (c_bool, *(c_void_p,) * 4, c_int, *(c_void_p,) * 2),
    "products_activation_back": (c_bool, *(c_void_p,) * 5),
    "products_norm_back": (c_bool, *(c_void_p,) * 6, c_bool, *(c_void_p,) * 5),
    "products_columns": (c_bool, *(c_void_p,) * 5),
}


def identity() -> str:
    """Return an identifier of the kernels in use: "compiled <digest>", or "torch".

    The digest covers sources, compiler and processor.
    """
    path = library()
    return f"compiled {path.stem}" if path else "torch"


@cache
def library() -> Path | None:
    """Return the path of the kernel library, or None if it is disabled or cannot be compiled.

    Compiles the library if necessary. Raises ParibusError if compilation fails although
    `PARIBUS_CPU_KERNELS` is "on", or if the variable has an unknown value.
    """
    setting = os.environ.get(SWITCH, "auto")
    if setting not in ("auto", "on", "off"):
        raise ParibusError(f"{SWITCH}={setting} is invalid; set it to auto, on or off")
    if setting == "off":
        return None
    try:
        return _compiled()
    except ParibusError:
        if setting == "on":
            raise
        return None


def open_library(path: Path) -> ctypes.CDLL:
    """Load a kernel library. Raises OSError, or AttributeError if a function is missing."""
    loaded = ctypes.CDLL(str(path))
    for name, arguments in SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, None
    loaded.products_pay.restype = c_bool
    return loaded


def _compiled() -> Path:
    """Return the path of the cached library, after compiling and checking it if necessary."""
    compiler = _compiler()
    # The arguments in CXX are in the digest, because they can change results (-ffast-math).
    flags = [*compiler[1:], *FLAGS, *WIDE.get(platform.machine(), ())]
    sources = sorted(SOURCES.glob("*.cpp"))
    texts = {path.name: path.read_text("utf-8") for path in (*sources, *SOURCES.glob("*.h"))}
    key = [texts, flags, _run(*compiler, "--version"), platform.machine()]
    key.append(processor("flags", "Features"))  # machines may share a cache
    # One folder per user, so that nobody loads another user's code.
    folder = cache_folder() / f"kernels-{os.getuid() if hasattr(os, 'getuid') else ''}"
    path = folder / f"{digest(key)[:16]}.so"
    if path.is_file():
        return path
    logging.getLogger("paribus").warning(
        "compiling CPU kernels, once per processor, which takes about 15 seconds; set "
        f"{SWITCH}=off to use PyTorch's kernels instead"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        with tempfile.TemporaryDirectory(prefix="compiling-", dir=folder) as temporary:
            output = Path(temporary) / path.name
            _run(compiler[0], *flags, *map(str, sources), "-o", str(output))
            # In a separate process, which a faulty library may crash.
            check = str(Path(__file__).with_name("self_check.py"))
            _run(sys.executable, check, str(output), PYTHONPATH=os.pathsep.join(sys.path))
            output.chmod(0o600)
            output.replace(path)
    except OSError as error:  # such as a full disk or a read-only cache
        raise _no_library(f"cannot write the kernel library to {folder} ({error})") from None
    return path


def _compiler() -> list[str]:
    """Return the compiler command from `CXX`, or the first known compiler on the PATH."""
    if command := os.environ.get("CXX", "").strip():
        return shlex.split(command)
    if path := next(filter(None, map(shutil.which, COMPILERS)), None):
        return [path]
    raise _no_library("no C++ compiler was found")


def _run(*command: str, **environment: str) -> str:
    """Run a command and return its standard output. Raises ParibusError if it fails."""
    try:
        process = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_library(f"cannot run {command[0]} to compile kernels ({error})") from None
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        problem = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise _no_library(f"compiling kernels with {command[0]} failed ({problem})")
    return process.stdout


def _no_library(problem: str) -> ParibusError:
    return ParibusError(
        f"{problem}; install g++ or clang++, or set {SWITCH}=off", code="not_installed"
    )
