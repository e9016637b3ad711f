"""The command line in a process of its own, with what tests need: checkpoints at every step, and
faults of the disk in it and in its workers.

    python commands.py [--fault KIND PLACE LOG] VERB ...
    python commands.py --worker KIND PLACE LOG ...        # how such a process starts its worker

KIND is an error by name (ENOSPC, EIO), which the write at PLACE meets after half of its bytes, or
`torn`: half of the bytes, then the process is killed. PLACE is `PATH#N`: of all processes together
the Nth write of a file of that path, which may be a pattern. LOG is a file that takes the path of
every write, a line each.

The verb `train STUDY STACK` is `run` without the report.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from paribus import files


def fail_at(kind: str, place: str, log: Path) -> None:
    """Let the write at `place` meet a fault; processes count together, through `log`."""
    real_file, real_store = files._new_file, files._store
    paths: dict[int, str] = {}
    pattern, _, n = place.rpartition("#")

    def new_file(path: Path) -> tuple[int, str]:
        handle, partial = real_file(path)
        paths[handle] = _whole(path)
        return handle, partial

    def store(file: BinaryIO, content: bytes) -> None:
        path = paths[file.fileno()]
        handle = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{path}\n".encode())
        before = os.pread(handle, os.lseek(handle, 0, os.SEEK_CUR), 0).decode().splitlines()
        os.close(handle)
        is_there = fnmatchcase(path, pattern)
        if not is_there or sum(fnmatchcase(one, pattern) for one in before) != int(n):
            real_store(file, content)
            return
        file.write(content[: len(content) // 2])
        file.flush()
        if kind == "torn":
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, kind)
        raise OSError(code, os.strerror(code))

    files._new_file, files._store = new_file, store


def _whole(path: Path) -> str:
    """From the current folder, each half-written folder on the way under its name to be.

    Temporary folders elsewhere have names by chance.
    """
    if not path.absolute().is_relative_to(Path.cwd()):
        return f"elsewhere/{path.name}"
    parts = Path(os.path.relpath(path)).parts
    return "/".join(p.rsplit(".", 2)[0][1:] if p.endswith(files.PART) else p for p in parts)


def main(arguments: list[str]) -> int:
    if arguments[0] == "--worker":
        kind, place, log = arguments[1:4]
        fail_at(kind, place, Path(log))
        from paribus.runs import worker

        return worker.main(arguments[4:])

    from paribus.runs.executors import local
    from paribus.runs.run import run

    run.__kwdefaults__["checkpoint_seconds"] = 0.0
    if arguments[0] == "--fault":
        fault, arguments = arguments[1:4], arguments[4:]
        fail_at(fault[0], fault[1], Path(fault[2]))
        local.WORKER = (sys.executable, __file__, "--worker", *fault)
    if arguments[0] == "train":  # `run` without the report
        from paribus import ParibusError, load_study

        try:
            run(load_study(arguments[1]), "r", workers=1, device="cpu", stack=int(arguments[2]))
        except ParibusError as error:
            print(f"paribus: {error}", file=sys.stderr)
            return 2
        return 0
    from paribus.cli import main as cli

    return cli(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
