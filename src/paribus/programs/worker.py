"""A worker that runs other people's programs, one after the other: lines of JSON in and out.

It is started by a backend as every worker is (`paribus.engine.execution.workers`), imports little,
and no PyTorch. When its input ends, whoever started it is gone or wants it to stop: it ends the
program under way with all that this has started, and leaves. It is a process of its own so that
this is so also where the command was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from paribus.programs.process import run_program
from paribus.programs.values import Finder

HELLO = "HelloProgram"
TELL_SECONDS = 1.0
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


def main(hello: str, end_others: Callable[[], None] = lambda: None) -> int:
    """Work until the input ends; returns the exit code. `hello` is the first line that came."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    tasks: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def read() -> None:
        with contextlib.suppress(ValueError):  # whoever asked died in the middle of a line
            for line in sys.stdin:
                tasks.put(json.loads(line))
        stop.set()
        tasks.put(None)

    def tell(name: str, **about: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            channel.write(json.dumps({"message": name} | about) + "\n")
            channel.flush()

    threading.Thread(target=read, daemon=True).start()
    number = json.loads(hello)["number"]
    tell("ReadyProgram", **machine())
    interpreters: dict[str, dict[str, Any]] = {}
    while not stop.is_set() and (task := tasks.get()) is not None:
        try:
            tell("EndedProgram", **_run(task, number, tell, stop, end_others, interpreters))
        except OSError as error:
            words = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
            tell("EndedProgram", started=False, words=words)
    return 0


def _run(
    task: Mapping[str, Any],
    number: int,
    tell: Callable[..., None],
    stop: threading.Event,
    end_others: Callable[[], None],
    interpreters: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Run the program of a task; returns what is told of it."""
    env = os.environ | task["env"]
    if task["gpus"] is not None:
        env[VISIBLE] = ",".join(shares(gpus(), task["gpus"], number))
    software = interpreter(task["argv"], task["folder"], env)
    if software and software not in interpreters:
        interpreters[software] = packages(software, task["folder"], env)
    finders = {name: Finder(*about) for name, about in task["patterns"].items()}
    told = time.monotonic()

    def hear(line: str) -> None:
        for finder in finders.values():
            finder.hear(line)

    def tick() -> None:
        nonlocal told
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            latest = {name: (one.step, one.value) for name, one in finders.items() if one.n}
            tell("Heard", latest={k: (s, None if v != v else v) for k, (s, v) in latest.items()})

    end = run_program(
        task["argv"],
        folder=Path(task["folder"]),
        env=env,
        log=Path(task["log"]),
        log_bytes=task["log_bytes"],
        hear=hear,
        timeout=task["timeout"],
        stop=stop,
        tick=tick,
        end_others=end_others,
    )
    return {
        "started": True,
        "code": end.code,
        "words": end.words,
        "seconds": end.seconds,
        "why": end.why,
        "n_bytes": end.n_bytes,
        "n_left_out": end.n_left_out,
        "last": list(end.last),
        "lingered": end.lingered,
        "found": {name: finder.found for name, finder in finders.items()},
        "gpus": names_of(env.get(VISIBLE)),
        "software": interpreters.get(software, {}),
    }


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
