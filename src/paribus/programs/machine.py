"""Description of the machine: processor, GPUs, and the packages of a program's interpreter."""

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
    """Return a record of the machine, devices and packages that a program uses.

    Args:
        argv: the program and its arguments.
        folder: its working directory.
        env: its environment variables.
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
    """Return the processor's name: the first line of /proc/cpuinfo with one of these fields."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in names:
                return value.strip()
    return platform.processor() or platform.machine()


@cache
def gpus() -> dict[str, str]:
    """Return the names of the GPUs that this process may use, keyed by index."""
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
    """Return the comma-separated indices of the `n` GPUs for a worker's slot.

    Raises OSError if there are fewer than `n` GPUs.
    """
    indices = list(gpus())
    if n > len(indices):
        raise OSError(f"a trial needs {n} GPUs (trainer.gpus), but the machine has {len(indices)}")
    first = slot % (len(indices) // n) * n if n else 0
    return ",".join(indices[first : first + n])


def interpreter(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """Return the Python interpreter that a command runs, or "" if it runs none.

    The interpreter is the program itself, or the one in its shebang line.
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
    """Return the standard output of a program, or "" if the program fails."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=ASK_SECONDS, check=True, **options
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
