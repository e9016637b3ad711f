"""Execution of a program until it and all its child processes have exited.

The program leads its own session and process group. When it exits or times out, the whole group is
terminated with SIGTERM and, after a grace period, SIGKILL. Output is written to a log of limited
size and passed to a callback line by line.
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
    """Exit status and output size of a program.

    Attributes:
        code: exit code, or the negative signal number.
        seconds: wall-clock time from start to exit.
        timed_out: whether the program was terminated because of its time limit.
        n_bytes: number of bytes in the output.
        n_left_out: number of output bytes that the log omits.
        last: last lines of the output.
    """

    code: int
    seconds: float
    timed_out: bool
    n_bytes: int
    n_left_out: int
    last: tuple[str, ...]

    @property
    def is_failed(self) -> bool:
        """Whether the program timed out or exited with a nonzero code."""
        return self.timed_out or self.code != 0

    def __str__(self) -> str:
        if self.timed_out:
            return f"timed out after {self.seconds:.3g} s"
        end = f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"
        return f"{end} after {self.seconds:.3g} s{' (out of memory?)' * (self.code == -9)}"


class Output:
    """Program output, written to a size-limited log and passed to a callback line by line.

    The log contains the first and the last `limit` / 2 bytes, regardless of the chunks in which the
    output arrives.
    """

    def __init__(self, log: Path, listen: Callable[[str], None], limit: int = LOG_BYTES) -> None:
        self._file = open(log, "wb", buffering=0)  # noqa: SIM115
        self._half, self._listen = limit // 2, listen
        self.n_bytes = self.n_left_out = 0
        self._tail = self._rest = b""
        self.last = deque[str](maxlen=LAST_LINES)

    def read(self, pipe: int, seconds: float) -> bool:
        """Wait up to `seconds` for output, and return whether any was read."""
        if not select.select([pipe], [], [], seconds)[0]:
            return False
        piece = os.read(pipe, PIECE_BYTES)
        if piece:
            self.write(piece)
        else:  # its end: only to wait for the process is left
            time.sleep(seconds)
        return bool(piece)

    def write(self, piece: bytes) -> None:
        """Append a chunk of output, treating carriage returns as line breaks."""
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
        """Flush the last line and close the log, marking omitted bytes with a line."""
        self._tell([self._rest])
        self._cut()
        if self.n_left_out:
            self._save(f"\n[paribus: {self.n_left_out:,} bytes omitted]\n".encode())
        self._save(self._tail)
        self._file.close()

    def _cut(self) -> None:
        """Discard all but the last `limit` / 2 bytes of the buffered output."""
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
    """Decode a line of output, and strip color codes and surrounding whitespace."""
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
    """Run a program until it exits, or raise OSError if it cannot be started.

    Args:
        argv: command line of the program.
        folder: working directory of the program.
        env: environment variables; the current environment is not inherited.
        output: destination of stdout and stderr.
        timeout: time limit in seconds, or None for no limit.
        tick: function that is called regularly while the program runs.
        end_others: function that kills processes that have left the program's process group.
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
    """Terminate a process group with SIGTERM and, after `grace` seconds, with SIGKILL."""
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
    """Return a `preexec_fn` that makes the kernel kill a child when its parent thread dies."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
