"""A worker that is several processes: the ranks of one model over many devices.

The one who starts workers sees one worker. It starts torchrun, which starts the ranks, and passes
lines of messages on: to rank 0, which tells them to the others, and from rank 0. torchrun restarts
nothing: where a rank dies it ends all of them, and the worker ends as any that dies, with a line on
which rank it was. Its trial is begun again from the last checkpoint as often as is registered.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.engine.execution.workers import messages
from paribus.engine.execution.workers.lifetime import Leaving, leave
from paribus.engine.execution.workers.messages import (
    Across,
    Failed,
    Hello,
    Refused,
    decode,
    encode,
)
from paribus.errors import ParibusError

if TYPE_CHECKING:
    import torch

    from paribus.engine.execution.workers.worker import WorkerContext
    from paribus.engine.training.ranks import Ranks

LEAVE_SECONDS = 60.0  # for the step under way and a checkpoint
RANKS_PER_CORE = 4  # of a CPU: more cannot be meant, and fill its memory
# What torchrun says of the first rank that died, and of each.
_ROOT_CAUSE = re.compile(
    r"Root Cause.*?rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL | re.IGNORECASE
)
_DIED = re.compile(r"rank\s*:\s*(\d+)[^\n]*\n\s*exitcode\s*:\s*(-?\d+)", re.IGNORECASE)


def devices_of(study: dict[str, Any]) -> int | None:
    """Return over how many devices a dumped study trains one model; None of none."""
    return study.get("resources", {}).get("devices_per_trial")


# The worker: it starts the ranks, and passes on


def relay(hello: Hello, tell_line: Callable[[str], None], leaving: Leaving) -> int:
    """Be the worker of `hello` by ranks until its input ends; returns its exit code.

    `tell_line` writes a line to whoever started the worker.
    """
    size, across = devices_of(hello.study) or 1, hello.across
    try:
        _device_of(hello, 0)
    except ParibusError as error:
        tell_line(encode(Refused(str(error))))
        return 2
    shared = across.folder if across else None
    with tempfile.TemporaryDirectory(prefix="paribus-ranks-", dir=shared) as name:
        folder = Path(name)
        (folder / "hello").write_text(encode(hello), encoding="utf-8")
        with open(folder / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                [*torchrun(size, across), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )
        said = _pass_on(process, tell_line, leaving)
        code = process.wait()
        stderr_text = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(stderr_text[-(2**16) :])
        sys.stderr.flush()
        if said.refused:
            return 2
        if code and not said.asked_to_leave:
            failure = _failure(folder, stderr_text, size)
            if isinstance(failure, str):
                print(failure, file=sys.stderr, flush=True)
            else:
                tell_line(encode(failure))
            return 1
        return 0


def torchrun(size: int, across: Across | None = None) -> list[str]:
    """Return the command that starts `size` ranks, on this machine or on several; it restarts none.

    On several, where the ranks meet is a port of the first machine, which is this one.
    """
    start: list[str] = []
    where, each = ["--standalone"], size
    if across:
        start, each = list(across.launch), size // across.nodes
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        where = ["--nnodes", str(across.nodes), "--master-port", str(port)]
    return [
        *(*start, sys.executable, "-m", "torch.distributed.run", *where),
        *("--nproc-per-node", str(each), "--max-restarts", "0"),
        *("-m", "paribus.engine.execution.workers.ranks"),
    ]


class _Said:
    """What went by."""

    def __init__(self) -> None:
        self.refused = False
        self.asked_to_leave = False


def _pass_on(
    process: subprocess.Popen[str], tell_line: Callable[[str], None], leaving: Leaving
) -> _Said:
    """Pass lines on in both directions until the ranks have left."""
    said = _Said()
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    def end() -> None:
        said.asked_to_leave = True
        with contextlib.suppress(OSError, ValueError):
            stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE_SECONDS)
        if process.poll() is None:
            process.kill()

    def down() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in sys.stdin:
                stdin.write(line)
                stdin.flush()
        end()

    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end, daemon=True).start())
    threading.Thread(target=down, daemon=True).start()
    for line in stdout:
        said.refused |= line.startswith(('{"message": "Refused"', '{"message": "Failed"'))
        tell_line(line)
    return said


def _failure(folder: Path, stderr: str, size: int) -> Refused | Failed | str:
    """Return what ranks said themselves that ended; else, in words, which one died and how."""
    errors = sorted(folder.glob("error-*"), key=lambda path: path.stat().st_mtime_ns)
    for path in errors:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["refused"]:
            return Refused(told["words"])
    causes = list(_ROOT_CAUSE.finditer(stderr))  # of each machine; a signal is what came first
    found = min(causes, key=lambda cause: int(cause[2]) >= 0, default=None)
    if found is None or int(found[2]) >= 0:
        # Of those that died within a second torchrun names the lowest rank, which may have ended as
        # it lost another that was killed. What torchrun ends itself has SIGTERM.
        codes = ((one, int(one[2])) for one in _DIED.finditer(stderr))
        found = next((one for one, code in codes if code < 0 and code != -signal.SIGTERM), found)
    if found and int(found[2]) < 0:
        how = f"signal {-int(found[2])}"
        hint = " (out of memory? run again with more resources.devices_per_trial)"
        how += hint if found[2] == "-9" else ""
        return f"rank {found[1]} of {size} died with {how}"
    if errors:
        told = json.loads(errors[0].read_text(encoding="utf-8"))
        return Failed(f"rank {errors[0].name[6:]} of {size}: {told['words']}", told["trace"])
    which = f"rank {found[1]} of {size}" if found else f"torchrun, of {size} ranks,"
    words = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = f": {words[-1][:200]}" if words and not found else ""
    return f"{which} ended{last}"


# A rank


class _RankLeaving(Leaving):
    """Of a rank: it is asked by the end of rank 0's input alone, and finishes what all are at."""

    def request(self) -> None:
        """Note it; the next step sees it."""
        self.asked = True


def main(arguments: list[str]) -> int:
    """Be a rank until rank 0 says that there is no more; returns the exit code."""
    folder, rank = Path(arguments[0]), int(os.environ["RANK"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints must not end up among the lines of the protocol.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if rank:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)

    def tell(message: object) -> None:
        if not rank:
            channel.write(encode(message))
            channel.flush()

    try:
        _work(folder, tell)
    except BaseException as error:
        _note(folder, rank, error, tell)
        return 1
    return 0


def _note(folder: Path, rank: int, error: BaseException, tell: Callable[[object], None]) -> None:
    """Leave word of what went wrong; rank 0 tells what the user can mend itself."""
    from paribus.engine.machine.environment import LESS_OF_A_RANK, machine_failure

    failure = str(error) if isinstance(error, ParibusError) else None
    if failure is None and (found := machine_failure(error, LESS_OF_A_RANK)):
        failure = f"rank {rank} of {os.environ['WORLD_SIZE']} (on {platform.node()}): {found}"
    words = failure or f"{type(error).__name__}: {error}"
    told = {"refused": bool(failure), "words": words, "trace": traceback.format_exc()}
    with contextlib.suppress(OSError):
        (folder / f"error-{rank}").write_text(json.dumps(told), encoding="utf-8")
    if failure:
        with contextlib.suppress(OSError):
            tell(Refused(failure))


def _work(folder: Path, tell: Callable[[object], None]) -> None:
    from paribus.engine.execution.workers.worker import WorkerContext, tasks_of
    from paribus.engine.machine.memory import free_unused
    from paribus.engine.training.ranks import Ranks, local_rank
    from paribus.engine.training.ranks import leave as part

    hello = decode((folder / "hello").read_text(encoding="utf-8"))
    device = _device_of(hello, local_rank())
    leaving = _RankLeaving()
    context = WorkerContext(hello, tell, leaving, device=device)
    ranks = Ranks.meet(device)
    tell(context.ready)
    tasks = tasks_of(leaving) if ranks.is_first else None
    while True:
        task = tasks.get() if tasks is not None else None
        line = ranks.told(encode(task) if task is not None else "")
        if not line:
            break
        free_unused(device)
        answer = do_together(context, ranks, decode(line))
        if answer is not None:
            tell(answer)
        if ranks.decided(leaving.asked)[0]:
            break
    part()


def _device_of(hello: Hello, local_rank: int) -> torch.device:
    """Return the device of a rank on this machine. Raises ParibusError where it has too few."""
    from paribus.engine.machine.environment import choose_device, count_devices

    nodes = hello.across.nodes if hello.across else 1
    size = (devices_of(hello.study) or 1) // nodes
    device = choose_device(hello.device, hello.number * size + local_rank)
    if device.type == "mps":
        raise ParibusError(
            "resources.devices_per_trial is of GPUs and CPUs, and this machine has MPS; state "
            "--device cpu, or leave it out"
        )
    if device.type == "cuda":
        what, most = "GPUs", count_devices(device)
        has = f"{most}"
    else:
        cores = os.cpu_count() or 1
        what, most = "processes", RANKS_PER_CORE * cores
        has = f"{cores} cores, each for {RANKS_PER_CORE} at most"
    if size > most:
        raise ParibusError(
            f"resources.devices_per_trial takes {size} {what} of a machine, and {platform.node()} "
            f"has {has}; state at most {most * nodes}, or more `nodes` of --backend slurm"
        )
    return device


def do_together(context: WorkerContext, ranks: Ranks, task: Any) -> object:
    """Do a task by all ranks; the answer, None where it has none."""
    from paribus.engine.execution.workers import together
    from paribus.engine.execution.workers.worker import do

    if type(task) in (messages.Adopt, messages.Declare, messages.Rest):
        return do(context, task)
    return together.do(context, ranks, task)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
