"""Run a program from its start to the end of its last child.

It leads a session and a process group of its own. When it has ended or took too long, the group
ends with it: SIGTERM, some seconds of grace, SIGKILL. Its output goes to a log of bounded size and,
line by line, to a listener.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paribus.programs.values import LINE_BYTES, clean_line

PIECE_BYTES = 1 << 16
LAST_LINES = 3
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL, of a program that took too long
LINGER_SECONDS = 1.0  # the same of children that outlive a program
POLL_SECONDS = 0.02
PR_SET_PDEATHSIG = 1  # prctl(2)

Listen = Callable[[str], None]


@dataclass(frozen=True)
class Ending:
    """The end of a program.

    Attributes:
        code: its exit code; minus the number of a signal.
        seconds: from its start to its end.
        timed_out: whether it took too long, and was ended.
        n_bytes, n_left_out: the size of its output, and of the part that the log leaves out.
        last: its last lines.
    """

    code: int
    seconds: float
    timed_out: bool
    n_bytes: int
    n_left_out: int
    last: tuple[str, ...]

    @property
    def is_failed(self) -> bool:
        """Whether it was ended, or ended with an error."""
        return self.timed_out or self.code != 0

    def __str__(self) -> str:
        after = f"after {self.seconds:.3g} s"
        if self.timed_out:
            return f"ended {after}, its timeout"
        if self.code < 0:
            return f"signal {-self.code} {after}{' (out of memory?)' if self.code == -9 else ''}"
        return f"exit code {self.code} {after}"


class CappedLog:
    """A log that keeps the first quarter and the last half of `most` bytes once it exceeds them.

    The cuts are at fixed offsets of the output, so they do not depend on how it arrives in pieces.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115
        self._most, self._head, self._tail = most, most // 4, most // 2
        self._size = self.n_bytes = 0
        self.n_left_out = 0

    def write(self, piece: bytes) -> None:
        """Append a piece, and drop the middle of the file when it is full."""
        self._file.write(piece)
        self._size += len(piece)
        self.n_bytes += len(piece)
        if self._size > self._most:
            self._replace_rest(self._read_tail())

    def close(self) -> None:
        """Mark the gap, if any, and close the file."""
        if self.n_bytes > self._most:
            tail = self._read_tail()
            tail = tail[tail.find(b"\n") + 1 :]
            self.n_left_out = self.n_bytes - self._head - len(tail)
            mark = f"\n[paribus: {self.n_left_out:,} bytes are left out here]\n"
            self._replace_rest(mark.encode() + tail)
        self._file.close()

    def _read_tail(self) -> bytes:
        self._file.seek(self._size - self._tail)
        return self._file.read()

    def _replace_rest(self, content: bytes) -> None:
        """Replace everything after the head."""
        self._file.seek(self._head)
        self._file.truncate()
        self._file.write(content)
        self._size = self._head + len(content)


def run_program(
    argv: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    log: Path,
    log_bytes: int,
    listen: Listen,
    timeout: float | None = None,
    tick: Callable[[], None] = lambda: None,
    end_others: Callable[[], None] = lambda: None,
) -> Ending:
    """Run a program to its end; raises OSError where it cannot be started.

    Args:
        argv: the program and its arguments.
        folder: its working directory.
        env: its whole environment.
        log: the file for its output and errors, of at most `log_bytes`.
        listen: is called with each line, in another thread.
        timeout: ends it after so many seconds.
        tick: is called now and then.
        end_others: ends processes that have left its group.
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
    kept, lines = CappedLog(log, log_bytes), deque[str](maxlen=LAST_LINES)
    assert process.stdout is not None
    args = (process.stdout.fileno(), kept, lines, listen)
    reader = threading.Thread(target=_read, args=args, daemon=True)
    reader.start()
    timed_out = False
    try:
        while process.poll() is None and not timed_out:
            tick()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
            timed_out = timeout is not None and time.monotonic() - began > timeout
        timed_out = timed_out and process.returncode is None
    finally:
        seconds = time.monotonic() - began
        _end_group(process, GRACE_SECONDS if process.poll() is None else LINGER_SECONDS)
        end_others()
        reader.join(LINGER_SECONDS)  # a process that has escaped may hold the pipe
        if not reader.is_alive():
            process.stdout.close()
            kept.close()
    return Ending(process.wait(), seconds, timed_out, kept.n_bytes, kept.n_left_out, tuple(lines))


def _read(pipe: int, log: CappedLog, lines: deque[str], listen: Listen) -> None:
    """Log the output of a program, and tell its lines; a carriage return ends a line too."""

    def tell(line: bytes) -> None:
        if text := clean_line(line):
            lines.append(text[:1000])
            listen(text)

    rest = b""
    while piece := os.read(pipe, PIECE_BYTES):
        with contextlib.suppress(ValueError, OSError):  # a full disk, or a log that was closed
            log.write(piece)
        *complete, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
        if len(rest) > LINE_BYTES:
            complete, rest = [*complete, rest[:LINE_BYTES]], b""
        for line in complete:
            tell(line)
    tell(rest)


def _end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End the group of a process: ask, wait, end by force."""
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
                time.sleep(POLL_SECONDS)
        except (ProcessLookupError, PermissionError):  # on macOS, of a group that has ended
            return


def _die_with_parent() -> Callable[[], None]:
    """Return a function that lets a child be killed when the thread that started it dies."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
