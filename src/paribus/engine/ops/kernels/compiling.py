"""Our own kernels: C++ that is compiled on the machine that runs it, once, by the compiler there.

Where there is no compiler, or it is turned off, PyTorch's kernels do the same work. Which of the
two a trial used stands in its record, and the controls ask that it is the same in every trial.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from ctypes import Structure, c_bool, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes

SWITCH = "PARIBUS_CPU_KERNELS"
# Where a process keeps its library that the cache cannot hold, for those that it starts.
PLACE = "PARIBUS_KERNELS"
SOURCES = Path(__file__).parent  # *.cpp, and the *.h that they share
COMPILERS = ("c++", "g++", "clang++")
# Without math-errno a root is one instruction; no number changes.
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-march=native", "-fno-math-errno")
WIDE = {"x86_64": ("-mprefer-vector-width=512",)}
LIMIT_SECONDS = 300  # some 15 s of a core, of which others may have the most


class AttentionArray(Structure):
    """An array [B, H, T, K] of which the last axis is contiguous: its address and strides."""

    _fields_ = (
        ("data", c_void_p),
        *((name, c_int64) for name in ("sequence", "head", "position")),
    )


class AttentionSizes(Structure):
    """B sequences, H heads, T positions and K channels of a head."""

    _fields_ = tuple((name, c_int64) for name in "BHTK")


class ProductSizes(Structure):
    """N rows, K inputs and M outputs."""

    _fields_ = tuple((name, c_int64) for name in "NKM")


_ATTENTION = (*(c_void_p,) * 3, c_bool)
_GATED = (c_void_p, c_int64, c_bool)
_NORM_SIZES = (c_bool, c_int64, c_int64)
# Of every function: what it is given. But for `products_pay` they give nothing.
SIGNATURES: dict[str, tuple[type, ...]] = {
    "attention_forward": _ATTENTION,
    "attention_backward": _ATTENTION,
    "norm_forward": (*(c_void_p,) * 3, c_float, *_NORM_SIZES, c_void_p, c_bool, c_void_p),
    "norm_backward": (c_void_p, c_bool, *(c_void_p,) * 3, *_NORM_SIZES, *(c_void_p,) * 3),
    "activation_forward": (c_int, *(c_void_p,) * 3, c_int64, c_bool),
    "activation_backward": (*(c_void_p,) * 3, c_int64, c_bool),
    "gated_forward": _GATED,
    "gated_backward": _GATED,
    "sums_columns": (c_void_p, c_bool, c_int64, c_int64, c_void_p),
    "sums_residual": (*(c_void_p,) * 3, c_int64),
    "adamw_step": (*(c_void_p,) * 5, c_float, c_int64, c_int64),
    "products_pay": (c_bool,),
    "products_rows": (c_bool, *(c_void_p,) * 3, c_bool, *(c_void_p,) * 2),
    "products_residual": (c_bool, *(c_void_p,) * 6),
    "products_activation": (c_bool, *(c_void_p,) * 4, c_int, *(c_void_p,) * 2),
    "products_activation_back": (c_bool, *(c_void_p,) * 5),
    "products_norm_back": (c_bool, *(c_void_p,) * 6, c_bool, *(c_void_p,) * 5),
    "products_columns": (c_bool, *(c_void_p,) * 5),
}

_turned_off = False
_why_none = ""  # why there is no library, as `library` found out


def resolve() -> str:
    """Return "on" or "off": what `PARIBUS_CPU_KERNELS`, by default auto, means on this machine."""
    return "on" if library() else "off"


def choose(wanted: str) -> None:
    """Let this process and those that it starts take compiled kernels: "auto", "on" or "off"."""
    os.environ[SWITCH] = wanted
    library.cache_clear()


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Let PyTorch's kernels do the work within: for comparisons in one process."""
    global _turned_off
    before, _turned_off = _turned_off, True
    try:
        yield
    finally:
        _turned_off = before


def is_turned_off() -> bool:
    """Tell whether this is `without_kernels`."""
    return _turned_off


def is_settled() -> bool:
    """Tell whether `resolve` answers at once: no compiler has to make kernels first."""
    try:
        return os.environ.get(SWITCH, "auto") == "off" or _found(_plan()[1]) is not None
    except _NoCompilerError:
        return True


def shortcoming() -> str | None:
    """Return why "auto" means "off" here, for people; None where it does not."""
    if library() is not None or os.environ.get(SWITCH, "auto") != "auto":
        return None
    return _why_none


@cache
def library() -> Path | None:
    """Return the compiled library, made now if need be; None where it is off or cannot be.

    Raises ParibusError where `PARIBUS_CPU_KERNELS` is "on" and it cannot be, or is no such word.
    """
    global _why_none
    wanted = os.environ.get(SWITCH, "auto")
    if wanted not in ("auto", "on", "off"):
        raise ParibusError(f"{SWITCH} is '{wanted}': it is auto, on or off")
    if wanted == "off":
        return None
    try:
        return _compiled()
    except _NoCompilerError as error:
        if wanted == "on":
            raise ParibusError(f"{SWITCH} is on, but {error}; set it to auto or off") from None
        _why_none = str(error)
        return None


def identity() -> str:
    """Return which kernels run here: a digest of their sources and compiler, or "torch"."""
    path = library()
    return f"compiled {path.stem}" if path else "torch"


class _NoCompilerError(Exception):
    """Says why there is no library."""


def _plan() -> tuple[list[str], Path]:
    """Return the command that makes the library, less its output, and where it is kept."""
    compiler = _compiler()
    # With the arguments of `CXX`, which can change numbers (-ffast-math).
    flags = [*compiler[1:], *FLAGS, *WIDE.get(platform.machine(), ())]
    sources = sorted(SOURCES.glob("*.cpp"))
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in [*sources, *sorted(SOURCES.glob("*.h"))]
    }
    about = [texts, flags, _said(*compiler, "--version"), platform.machine(), _cpu()]
    path = _folder() / f"{digest(about)[:16]}.so"
    return [*compiler[:1], *flags, *map(str, sources)], path


def _compiled() -> Path:
    command, path = _plan()
    if found := _found(path):
        return found
    logging.getLogger("paribus").warning(
        "compiling kernels for this processor, once: some 15 seconds "
        "(--cpu-kernels off does without)"
    )
    try:
        with tempfile.TemporaryDirectory(prefix="paribus-") as folder:
            return _made(command, path, Path(folder))
    except OSError as error:  # a full disk, or no place for what is temporary
        raise _NoCompilerError(f"there is no place to compile in: {error}") from None


def _made(command: list[str], path: Path, folder: Path) -> Path:
    """Make the library in `folder`, and keep it at `path` where it can be.

    A cache that cannot be written, that others can write, or that nothing is loaded from (noexec)
    cannot hold it: it is then of this process and of those that it starts.
    """
    made = folder / path.name
    _said(*command, "-o", str(made))
    no_library = _NoCompilerError(f"what {command[0]} makes is no library that can be loaded")
    if not _loads(made) and not _is_noexec(folder):
        raise no_library
    content = made.read_bytes()
    if _keeps(path, content):
        return path
    own = Path(tempfile.mkdtemp(prefix="paribus-"))
    atexit.register(_remove, own, os.getpid())
    if not _keeps(own / path.name, content):
        raise no_library
    os.environ[PLACE] = str(own)
    return own / path.name


def _keeps(path: Path, content: bytes) -> bool:
    """Write a library and its digest; tell whether it can be loaded from there."""
    with contextlib.suppress(ParibusError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Ours alone, also where the umask lets a group write; or it would be made every time.
        path.parent.chmod(0o700)
        write_bytes(path, content)
        write_bytes(_told(path), _sum(content))
    return _is_usable(path)


def _is_noexec(folder: Path) -> bool:
    """Tell whether the file system of `folder` is one that nothing is loaded from."""
    flag = getattr(os, "ST_NOEXEC", 0)  # Linux
    return bool(flag and os.statvfs(folder).f_flag & flag)


def _found(path: Path) -> Path | None:
    """Return the library at `path`, or its like in the place of this run; None without either."""
    places = [path, *(Path(own) / path.name for own in [os.environ.get(PLACE)] if own)]
    return next(filter(_is_usable, places), None)


def _folder() -> Path:
    """Return where this user's libraries are kept: of several, nobody loads another's code."""
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    return cache_folder() / f"kernels{user}"


def _told(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _compiler() -> list[str]:
    """Return `CXX`, a program or one with arguments, as make takes it; or else what is there."""
    if own := os.environ.get("CXX", "").strip():
        words = [own] if shutil.which(own) else own.split()
        if not shutil.which(words[0]):
            raise _NoCompilerError(f"CXX is '{own}', which is no program here")
        return words
    if found := next(filter(None, map(shutil.which, COMPILERS)), None):
        return [found]
    raise _NoCompilerError("there is no C++ compiler")


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library. Raises OSError, or AttributeError where it lacks a function."""
    found = ctypes.CDLL(str(path))
    for name, arguments in SIGNATURES.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, None
    found.products_pay.restype = c_bool
    return found


def _loads(path: Path) -> bool:
    try:
        open_library(path)
    except (OSError, AttributeError):
        return False
    return True


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # and not one that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NoCompilerError(f"{command[0]} does not run: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [""]
        raise _NoCompilerError(f"{command[0]} failed: {lines[0]}")
    return done.stdout


def _cpu() -> str:
    """Return what the compiler may use here: machines that share a cache have their own each."""
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def _is_usable(path: Path) -> bool:
    """Tell whether the file is there, ours alone, has the bytes that were written, and loads.

    What is cut short is not loaded: reading a page that a file no longer has ends the process.
    """
    try:
        told = _told(path).read_bytes()
        is_whole = _is_ours(path) and _is_ours(_told(path)) and _sum(path.read_bytes()) == told
    except OSError:
        return False
    return is_whole and _loads(path)


def _is_ours(path: Path) -> bool:
    """Tell whether nobody but its owner, who we are, can have written the file. Raises OSError."""
    if not hasattr(os, "getuid"):  # Windows, where a home is its owner's
        return True
    found, others = (path.lstat(), path.parent.stat()), stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISREG(found[0].st_mode) and all(
        one.st_uid == os.getuid() and not one.st_mode & others for one in found
    )
