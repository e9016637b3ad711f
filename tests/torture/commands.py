"""The command line in a process of its own, with what tests need: checkpoints at every step, and
faults of the disk in it and in its workers.

    python commands.py [--fault KIND K COUNTER] VERB ...
    python commands.py --worker KIND K COUNTER PARENT     # how such a process starts its workers

KIND is an error by name (ENOSPC, EIO), which write number K of all processes together meets after
half of its bytes, or `torn`: half of the bytes, then the process is killed. COUNTER is a file.

The verb `train STUDY STACK` is `run` without the report.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from paribus import files


def fail_at(kind: str, k: int, counter: Path) -> None:
    """Let write number k meet a fault; the count is shared by all processes through a file."""
    real = files._store

    def store(file: BinaryIO, content: bytes) -> None:
        handle = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, b".")
        number = os.lseek(handle, 0, os.SEEK_CUR)
        os.close(handle)
        if number != k:
            real(file, content)
            return
        file.write(content[: len(content) // 2])
        file.flush()
        if kind == "torn":
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, kind)
        raise OSError(code, os.strerror(code))

    files._store = store


def main(arguments: list[str]) -> int:
    if arguments[0] == "--worker":
        from paribus.execution.launch import tie_to

        kind, k, counter, parent = arguments[1:]
        tie_to(int(parent))
        fail_at(kind, int(k), Path(counter))
        from paribus.execution import worker

        return worker.main()

    from paribus.execution import run
    from paribus.execution.backends import local

    run.__kwdefaults__["checkpoint_seconds"] = 0.0
    if arguments[0] == "--fault":
        fault, arguments = arguments[1:4], arguments[4:]
        fail_at(fault[0], int(fault[1]), Path(fault[2]))
        assert local.COMMAND
        local.COMMAND = (sys.executable, __file__, "--worker", *fault)
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
