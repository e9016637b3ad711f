"""Description of a program's environment: processor, GPUs and Python packages."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ASK_SECONDS = 30.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Versions by the names of folders, as `pip freeze` would have them: files of metadata take longer.
PACKAGES = """
import json, os, sys
packages = {}
for folder in sys.path:
    for name in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
        if name.endswith((".dist-info", ".egg-info")):
            package, _, version = name.rpartition(".")[0].partition("-")
            packages.setdefault(package.replace("_", "-").lower(), version.partition("-py")[0])
print(json.dumps({"python": sys.version.split()[0], "packages": packages}))
"""


def describe(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the platform, processor, GPUs and Python packages that a program uses.

    Args:
        argv: command line of the program.
        folder: working directory of the program.
        env: environment variables of the program.
    """
    visible = env.get(VISIBLE)
    indices = gpus() if visible is None else visible.split(",")
    devices = [gpus()[index] for index in indices if index in gpus()]
    record = {"processor": processor("model name"), "system": platform.platform()}
    record |= {"python": "", "packages": {}}
    record["device"] = ", ".join(devices) or "cpu"
    python = interpreter(argv, folder, env)
    with contextlib.suppress(ValueError):  # it tells nothing
        record |= json.loads(_output([python, "-c", PACKAGES], cwd=folder, env=env))
    return record


def processor(*names: str) -> str:
    """Return the processor name, from the first field of /proc/cpuinfo that is in `names`."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in names:
                return value.strip()
    return platform.processor() or platform.machine()


@cache
def gpus() -> dict[str, str]:
    """Return the names of the GPUs that are visible to this process, keyed by index."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    usable = {}
    query = [program, "--query-gpu=index,uuid,name", "--format=csv,noheader"]
    visible = os.environ.get(VISIBLE)
    for line in _output(query).splitlines():
        index, uuid, name = (part.strip() for part in line.split(",", 2))
        wanted = [index] if visible is None else visible.split(",")
        if index in wanted or any(id_ and uuid.startswith(id_) for id_ in wanted):
            usable[index] = name
    return usable


def share_gpus(n: int, slot: int) -> str:
    """Assign `n` GPUs to a worker slot, and return their comma-separated indices.

    Raises OSError if there are fewer than `n` GPUs.
    """
    indices = list(gpus())
    if n > len(indices):
        raise OSError(f"trainer.gpus = {n}, but only {len(indices)} GPUs are visible")
    first = slot % (len(indices) // n) * n if n else 0
    return ",".join(indices[first : first + n])


def interpreter(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """Return the path of the Python interpreter that a command uses, or "" for other programs.

    The interpreter is the program itself, or the one in the program's shebang line.
    """
    program = argv[0] if os.sep in argv[0] else shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        return ""
    path = folder / program
    if path.name.startswith("python"):
        return str(path)
    with contextlib.suppress(OSError), open(path, "rb") as file:
        first = file.readline(512).decode("utf-8", "replace")
        words = first[2:].split() if first.startswith("#!") else []
        if words and words[0].endswith("/env"):
            return shutil.which(words[-1], path=env.get("PATH")) or ""
        if words and "python" in words[0]:
            return words[0]
    return ""


def _output(argv: list[str], **options: Any) -> str:
    """Run a program and return its standard output, or "" if the program fails."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=ASK_SECONDS, check=True, **options
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
