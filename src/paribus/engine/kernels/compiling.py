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
FUNCTIONS = (
    *("attention_forward", "attention_backward", "norm_forward", "norm_backward"),
    *("activation_forward", "activation_backward", "gated_forward", "gated_backward"),
    *("sums_columns", "sums_residual", "adamw_step"),
    *("products_pay", "products_rows", "products_residual", "products_activation"),
    *("products_activation_back", "products_norm_back", "products_columns"),
)
WIDE = {"x86_64": ("-mprefer-vector-width=512",)}
LIMIT_SECONDS = 300  # some 15 s of a core, of which others may have the most

_why_none = ""  # why there is no library, as `library` found out


def resolve() -> str:
    """Return "on" or "off": what `PARIBUS_CPU_KERNELS`, by default auto, means on this machine."""
    return "on" if library() else "off"


def choose(wanted: str) -> None:
    """Let this process and those that it starts take compiled kernels: "auto", "on" or "off"."""
    os.environ[SWITCH] = wanted
    library.cache_clear()


def is_settled() -> bool:
    """Whether `resolve` answers at once: no compiler has to make kernels first."""
    try:
        return os.environ.get(SWITCH, "auto") == "off" or _found(_plan()[1]) is not None
    except _NoCompilerError:
        return True


def shortcoming() -> str | None:
    """Why "auto" means "off" here, for people; None where it does not."""
    if library() is not None or os.environ.get(SWITCH, "auto") != "auto":
        return None
    return _why_none


@cache
def library() -> Path | None:
    """The compiled library, made now if need be; None where it is off or cannot be.

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
    """Which kernels run here: a digest of what they are compiled from and by, or "torch"."""
    path = library()
    return f"compiled {path.stem}" if path else "torch"


class _NoCompilerError(Exception):
    """Why there is no library."""


def _plan() -> tuple[list[str], Path]:
    """The command that makes the library of this machine, less where to, and where it is kept."""
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
    """The library by this command, made in `folder` and kept at `path` where it can be.

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
    """Write a library and its digest; whether it can be taken from there."""
    with contextlib.suppress(ParibusError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Ours alone, also where the umask lets a group write; or it would be made every time.
        path.parent.chmod(0o700)
        write_bytes(path, content)
        write_bytes(_told(path), _sum(content))
    return _is_usable(path)


def _is_noexec(folder: Path) -> bool:
    """Whether the file system of `folder` is one that nothing is loaded from."""
    flag = getattr(os, "ST_NOEXEC", 0)  # Linux
    return bool(flag and os.statvfs(folder).f_flag & flag)


def _found(path: Path) -> Path | None:
    """The library of that path, which is there, or its like in the place of this run."""
    places = [path, *(Path(own) / path.name for own in [os.environ.get(PLACE)] if own)]
    return next(filter(_is_usable, places), None)


def _folder() -> Path:
    """Where this user's libraries are kept: in a cache of several, nobody loads another's code."""
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    return cache_folder() / f"kernels{user}"


def _told(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _compiler() -> list[str]:
    """`CXX`, a program or one with arguments, as make takes it; or else what is there."""
    if own := os.environ.get("CXX", "").strip():
        words = [own] if shutil.which(own) else own.split()
        if not shutil.which(words[0]):
            raise _NoCompilerError(f"CXX is '{own}', which is no program here")
        return words
    if found := next(filter(None, map(shutil.which, COMPILERS)), None):
        return [found]
    raise _NoCompilerError("there is no C++ compiler")


def _loads(path: Path) -> bool:
    """Whether it is a library that has what is asked of it."""
    try:
        found = ctypes.CDLL(str(path))
    except OSError:
        return False
    return all(hasattr(found, name) for name in FUNCTIONS)


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
    """What the compiler may use here: of two machines that share a cache, each has its own."""
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def _is_whole(path: Path) -> bool:
    """Whether the file is there, ours alone, and has the bytes that were written.

    What is cut short is not loaded: reading a page that a file no longer has ends the process.
    """
    try:
        told = _told(path).read_bytes()
        return _is_ours(path) and _is_ours(_told(path)) and _sum(path.read_bytes()) == told
    except OSError:
        return False


def _is_usable(path: Path) -> bool:
    return _is_whole(path) and _loads(path)


def _is_ours(path: Path) -> bool:
    """Whether the file is there, and nobody but its owner, who we are, can have written it."""
    try:
        found = [path.lstat(), path.parent.stat()]
    except OSError:
        return False
    if not hasattr(os, "getuid"):  # Windows, where a home is its owner's
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISREG(found[0].st_mode) and all(
        one.st_uid == os.getuid() and not one.st_mode & others for one in found
    )
