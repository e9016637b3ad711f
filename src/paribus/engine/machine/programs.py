"""How workers of this machine are started; a command asks for them before it imports the rest."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from paribus.engine import has_engine
from paribus.engine.machine.forks import Template, template
from paribus.engine.ops import SWITCH, is_settled, resolve
from paribus.search_path import own_folders, shared_folders

Device = Literal["auto", "cpu", "cuda", "mps"]

TEMPLATE = (sys.executable, "-P", "-m", "paribus.engine.execution.template")
FORKS = True  # workers are forks of a template where that is safe
# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def is_surely_cpu(device: Device | str) -> bool:
    """Whether there is no sign of a GPU, found without PyTorch; False where that is unknown."""
    if device != "auto":
        return device == "cpu"
    gpu = shutil.which("nvidia-smi") or any(Path(file).exists() for file in GPU_FILES)
    return sys.platform == "linux" and not gpu


def can_fork() -> bool:
    """Whether workers are forks here: what a driver of a GPU knows cannot be forked."""
    return FORKS and is_surely_cpu("auto")


def has_template() -> bool:
    """Whether workers are started by a template here, as forks or not: Linux lets it end all that
    they leave behind."""
    return FORKS and sys.platform == "linux"


def worker_environment() -> dict[str, str]:
    """The environment variables that a worker needs beside those that are there."""
    return {
        "OMP_NUM_THREADS": "1",
        # Needed for deterministic matrix products on CUDA.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # The worker imports what this process imports, installed or not.
        # Settled here, so that no worker does without what another has.
        SWITCH: resolve(),
        "PYTHONPATH": os.pathsep.join([*shared_folders(), *own_folders()]),
    }


def start_program(
    command: Sequence[str], files: Sequence[int], *, searches_own_code: bool = True
) -> subprocess.Popen[bytes]:
    """Start a program with `files` as its standard input, output and error."""
    environment = os.environ | worker_environment()
    if not searches_own_code:
        environment["PYTHONPATH"] = os.pathsep.join(shared_folders())
    stdin, stdout, stderr = files
    return subprocess.Popen(
        [*command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
    )


def worker_template(*, is_fresh: bool) -> Template:
    """What starts the workers of this process; see `forks.template`."""
    resolve()  # it may set what the environment of the template has, by which it is known
    return template(_start_template, is_fresh=is_fresh and can_fork())


def warm_up() -> None:
    """Begin to import what workers need, where they will be forks; does not wait.

    It takes seconds of a core, while this process has a study to read and a text to prepare. What
    goes wrong is told when the first worker is asked for. Kernels are compiled then, too: a mistake
    in the study is told first, and alone.
    """
    if can_fork() and has_engine():
        threading.Thread(target=_warm_up, daemon=True).start()


def _warm_up() -> None:
    with contextlib.suppress(Exception):
        if is_settled():
            worker_template(is_fresh=False)


def _start_template(channel: int) -> subprocess.Popen[bytes]:
    """A process that starts workers, forks of it where they can be; their words are their own."""
    nowhere = subprocess.DEVNULL
    command = (*TEMPLATE, str(os.getpid()), "forks" if can_fork() else "anew")
    return start_program(command, (channel, nowhere, nowhere), searches_own_code=False)
