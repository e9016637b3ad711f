"""One program, from its start to the end of its last child: watched, limited, its words kept.

It leads a session and a process group of its own. When it has ended, was asked to or took too long,
the group ends with it: SIGTERM, some seconds of grace, SIGKILL. What it prints goes to a log of
bounded size, line by line past whoever listens, and never into memory.
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

from paribus.programs.values import LINE_BYTES, text_of

PIECE_BYTES = 1 << 16
LAST_LINES = 20
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL, of a program that is asked to end
LINGER_SECONDS = 1.0  # the same of what a program has left behind when it has ended itself
POLL_SECONDS = 0.02
PR_SET_PDEATHSIG = 1  # prctl(2)

Hear = Callable[[str], None]


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Attributes:
        code: its exit code; minus the number of a signal.
        seconds: from its start to its end.
        why: "timeout" or "stopped" where it was ended by us; empty where it ended itself.
        n_bytes: how much it printed, and how much of that the log leaves out, `n_left_out`.
        last: its last lines.
        lingered: whether something that it had started was still there, and was ended.
    """

    code: int
    seconds: float
    why: str
    n_bytes: int
    n_left_out: int
    last: tuple[str, ...]
    lingered: bool

    @property
    def words(self) -> str:
        """`exit code 1 after 3.2 s`."""
        after = f"after {self.seconds:.3g} s"
        if self.why == "timeout":
            return f"ended {after}, its timeout"
        if self.code < 0:
            hint = " (out of memory?)" if self.code == -9 and not self.why else ""
            return f"signal {-self.code} {after}{hint}"
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
        """Mark what was left out, and close the file."""
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
    hear: Hear,
    timeout: float | None = None,
    stop: threading.Event | None = None,
    tick: Callable[[], None] = lambda: None,
    end_others: Callable[[], None] = lambda: None,
) -> Ending:
    """Run a program to its end; raises OSError where it cannot be started.

    Args:
        argv: the program and its arguments.
        folder: where it is started.
        env: all of its environment.
        log: where its output and its errors go, at most `log_bytes` of them.
        hear: is given each of its lines.
        timeout: ends it after so many seconds.
        stop: ends it when it is set.
        tick: is called now and then.
        end_others: ends what has left the group of the program.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent() if sys.platform == "linux" else None,
    )
    kept, lines = CappedLog(log, log_bytes), deque[str](maxlen=LAST_LINES)
    assert process.stdout is not None
    reader = threading.Thread(
        target=_read, args=(process.stdout.fileno(), kept, lines, hear), daemon=True
    )
    reader.start()
    why = ""
    try:
        while process.poll() is None:
            if stop is not None and stop.is_set():
                why = "stopped"
            elif timeout is not None and time.monotonic() - began > timeout:
                why = "timeout"
            if why:
                break
            tick()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
    finally:
        seconds = time.monotonic() - began
        if process.poll() is None:
            _end_group(process, GRACE_SECONDS)
        lingered = _group_exists(process.pid)
        if lingered:
            _end_group(process, LINGER_SECONDS)
        end_others()
        reader.join(LINGER_SECONDS)  # what has escaped us may hold the pipe
        if not reader.is_alive():
            process.stdout.close()
            kept.close()
    return Ending(
        process.wait(), seconds, why, kept.n_bytes, kept.n_left_out, tuple(lines), lingered
    )


def _read(pipe: int, kept: CappedLog, lines: deque[str], hear: Hear) -> None:
    """Take what a program prints until its end; a carriage return ends a line too."""
    rest = b""
    while piece := os.read(pipe, PIECE_BYTES):
        with contextlib.suppress(ValueError, OSError):  # a full disk, or a log that was closed
            kept.write(piece)
        *whole, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
        if len(rest) > LINE_BYTES:
            whole, rest = [*whole, rest[:LINE_BYTES]], b""
        for line in whole:
            _tell(line, lines, hear)
    _tell(rest, lines, hear)


def _tell(line: bytes, lines: deque[str], hear: Hear) -> None:
    if text := text_of(line):
        lines.append(text[:1000])
        hear(text)


def _end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End the group of a process: ask, wait, end by force."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE_SECONDS)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            is_ended = process.poll() is not None
            if is_ended:
                _reap(process.pid)
            if is_ended and not _group_exists(process.pid):
                return
            time.sleep(POLL_SECONDS)


def _reap(group: int) -> None:
    """Wait for what has ended of a group, where orphans become our children: until somebody does,
    they count as members of it."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return sys.platform == "linux"
    return True


def _die_with_parent() -> Callable[[], None]:
    """Return what lets a child be killed when the thread that started it dies (Linux)."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
