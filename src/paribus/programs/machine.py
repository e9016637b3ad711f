"""The machine that programs run on: processor, GPUs, and the packages of their interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ASK_SECONDS = 30.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Versions by the names of folders, as `pip freeze` would have them: files of metadata take longer.
PACKAGES = """
import json, os, sys
found = {}
for folder in sys.path:
    for name in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
        if name.endswith((".dist-info", ".egg-info")):
            package, _, version = name.rpartition(".")[0].partition("-")
            found.setdefault(package.replace("_", "-").lower(), version.partition("-py")[0])
print(json.dumps({"python": sys.version.split()[0], "packages": found}))
"""


def machine() -> dict[str, Any]:
    """Return the machine of this process: its processor, system, and GPUs by name."""
    return {"processor": _processor(), "system": platform.platform(), "gpus": list(gpus().values())}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


_gpus: dict[str, str] | None = None


def gpus() -> dict[str, str]:
    """Return the GPUs that this process may use, {index: name}; asked once."""
    global _gpus
    if _gpus is None:
        _gpus = {}
        if program := shutil.which("nvidia-smi"):
            query = [program, "--query-gpu=index,uuid,name", "--format=csv,noheader"]
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                said = subprocess.run(
                    query, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
                )
                visible = os.environ.get(VISIBLE)
                for line in said.stdout.splitlines():
                    index, uuid, name = (part.strip() for part in line.split(",", 2))
                    wanted = visible.split(",") if visible is not None else [index]
                    if index in wanted or any(one and uuid.startswith(one) for one in wanted):
                        _gpus[index] = name
    return _gpus


def names_of(visible: str | None) -> list[str]:
    """Return the names of the GPUs that a program sees by its environment."""
    known = gpus()
    if visible is None:
        return list(known.values())
    return [known[one] for one in visible.split(",") if one in known]


def shares(there: Mapping[str, str], wanted: int, number: int) -> list[str]:
    """Return the indices of `wanted` GPUs for the worker `number`. Raises OSError for too few."""
    if not wanted:
        return []
    places = len(there) // wanted
    if not places:
        raise OSError(f"a trial wants {wanted} GPUs (trainer.gpus), and there are {len(there)}")
    first = (number % places) * wanted
    return list(there)[first : first + wanted]


def interpreter(argv: Sequence[str], folder: str, env: Mapping[str, str]) -> str:
    """Return the Python that a command runs: the program itself, or that of its first line."""
    program = argv[0] if os.sep in argv[0] else shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        return ""
    path = Path(folder, program)
    if path.name.startswith("python"):
        return str(path)
    with contextlib.suppress(OSError), open(path, "rb") as file:
        first = file.readline(512)
        words = first[2:].decode("utf-8", "replace").split() if first[:2] == b"#!" else []
        if words and words[0].endswith("/env"):
            return shutil.which(words[-1], path=env.get("PATH")) or ""
        if words and "python" in words[0]:
            return words[0]
    return ""


def packages(python: str, folder: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the version and the packages of an interpreter; nothing where it does not tell."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        said = subprocess.run(
            [python, "-c", PACKAGES],
            cwd=folder,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=True,
        )
        return json.loads(said.stdout)
    return {}
