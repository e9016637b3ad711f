"""Processes as tests see them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def running(*command: str) -> set[int]:
    """The processes that run this very command."""
    wanted, found = "".join(f"{word}\0" for word in command).encode(), set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has left meanwhile
            if (process / "cmdline").read_bytes() == wanted:
                found.add(int(process.name))
    return found
