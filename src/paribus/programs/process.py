"""Running of a program until it and all its children have ended.

The program leads its own session and process group. When it ends or takes too long, the whole group
is terminated: SIGTERM, a grace period, then SIGKILL. Its output goes to a log of bounded size
and, line by line, to a listener.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOG_BYTES = 16 << 20  # of the output of a trial that are kept
LINE_BYTES = 1 << 16  # the rest of a longer line is ignored
PIECE_BYTES = 1 << 16
LAST_LINES = 3
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL, of a program that took too long
LINGER_SECONDS = 1.0  # the same of children that outlive a program
POLL_SECONDS = 0.02
COLOUR = re.compile("\x1b\\[[0-9;]*m")
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True)
class Ending:
    """The end of a program.

    Attributes:
        code: the exit code, or the negative signal number.
        seconds: the time from start to end.
        timed_out: whether the program was terminated because it took too long.
        n_bytes: the size of its output.
        n_left_out: the number of output bytes that the log omits.
        last: the last lines of its output.
    """

    code: int
    seconds: float
    timed_out: bool
    n_bytes: int
    n_left_out: int
    last: tuple[str, ...]

    @property
    def is_failed(self) -> bool:
        """Whether the program timed out or ended with an error."""
        return self.timed_out or self.code != 0

    def __str__(self) -> str:
        if self.timed_out:
            return f"timed out after {self.seconds:.3g} s"
        end = f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"
        return f"{end} after {self.seconds:.3g} s{' (out of memory?)' * (self.code == -9)}"


class Output:
    """The output of a program: a log with its first and its last bytes, and lines for a listener.

    The log keeps the first and the last half of `limit` bytes. The cuts are at fixed offsets of the
    output, so they do not depend on how it arrives.
    """

    def __init__(self, log: Path, listen: Callable[[str], None], limit: int = LOG_BYTES) -> None:
        self._file = open(log, "wb", buffering=0)  # noqa: SIM115
        self._half, self._listen = limit // 2, listen
        self.n_bytes = self.n_left_out = 0
        self._tail = self._rest = b""
        self.last = deque[str](maxlen=LAST_LINES)

    def read(self, pipe: int, seconds: float) -> bool:
        """Wait up to `seconds` for output and read it. Return whether any arrived."""
        if not select.select([pipe], [], [], seconds)[0]:
            return False
        piece = os.read(pipe, PIECE_BYTES)
        if piece:
            self.write(piece)
        else:  # its end: only to wait for the process is left
            time.sleep(seconds)
        return bool(piece)

    def write(self, piece: bytes) -> None:
        """Add a chunk of output. Carriage returns also end lines."""
        n_first = max(self._half - self.n_bytes, 0)
        self.n_bytes += len(piece)
        self._save(piece[:n_first])
        self._tail += piece[n_first:]
        if len(self._tail) > 2 * self._half:
            self._cut()
        *lines, rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[:LINE_BYTES]
        self._tell(lines)

    def close(self) -> None:
        """Complete the last line and the log. A line in the log marks omitted bytes."""
        self._tell([self._rest])
        self._cut()
        if self.n_left_out:
            self._save(f"\n[paribus: {self.n_left_out:,} bytes are left out here]\n".encode())
        self._save(self._tail)
        self._file.close()

    def _cut(self) -> None:
        """Keep only the last half of the limit in memory."""
        n_over = max(len(self._tail) - self._half, 0)
        self.n_left_out += n_over
        self._tail = self._tail[n_over:]

    def _save(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._file.write(content)

    def _tell(self, lines: list[bytes]) -> None:
        for line in filter(None, map(clean_line, lines)):
            self.last.append(line[:1000])
            self._listen(line)


def clean_line(line: bytes) -> str:
    """Return a line without color codes, as patterns see it."""
    return COLOUR.sub("", line[:LINE_BYTES].decode("utf-8", "replace")).strip()


def run_program(
    argv: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    output: Output,
    timeout: float | None = None,
    tick: Callable[[], None] = lambda: None,
    end_others: Callable[[], None] = lambda: None,
) -> Ending:
    """Run a program to its end. Raises OSError if it cannot be started.

    Args:
        argv: the program and its arguments.
        folder: its working directory.
        env: its whole environment.
        output: receives its output and errors.
        timeout: number of seconds after which it is ended.
        tick: function that is called regularly while it runs.
        end_others: a function that kills processes that have left its process group.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent() if sys.platform == "linux" else None,
    )
    assert process.stdout is not None
    pipe, timed_out = process.stdout.fileno(), False
    try:
        while process.poll() is None and not timed_out:
            tick()
            output.read(pipe, POLL_SECONDS)
            timed_out = timeout is not None and time.monotonic() - began > timeout
        timed_out = timed_out and process.poll() is None
    finally:
        seconds = time.monotonic() - began
        grace = GRACE_SECONDS if process.poll() is None else LINGER_SECONDS
        _end_group(process, grace, lambda: output.read(pipe, POLL_SECONDS))
        end_others()
        deadline = time.monotonic() + LINGER_SECONDS  # a process that has escaped may go on
        while output.read(pipe, 0) and time.monotonic() < deadline:
            pass
        process.stdout.close()
        output.close()
    code = process.wait()
    return Ending(code, seconds, timed_out, output.n_bytes, output.n_left_out, tuple(output.last))


def _end_group(process: subprocess.Popen[bytes], grace: float, wait: Callable[[], object]) -> None:
    """Terminate the group of a process: SIGTERM, a grace period, then SIGKILL."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE_SECONDS)):
        deadline = time.monotonic() + patience
        try:
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    # Orphans may become our children: until we wait for them, they are members.
                    with contextlib.suppress(ChildProcessError):
                        while os.waitpid(-process.pid, os.WNOHANG)[0]:
                            pass
                os.killpg(process.pid, 0)
                wait()
        except (ProcessLookupError, PermissionError):  # on macOS, of a group that has ended
            return


def _die_with_parent() -> Callable[[], None]:
    """Return a function that makes a child die with the thread that started it."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
